// A tool loop as a LangGraph graph, unchanged: OPENAI_BASE_URL says where the model is.
// node langgraph.mjs STEPS
import { ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { END, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { ToolNode } from "@langchain/langgraph/prebuilt";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";

const steps = Number(process.argv[2]);
let calls = 0;
const tools = [
  tool(({ word }) => `${word}: page ${++calls}`, { name: "look_up", description: "Looks a word up.", schema: z.object({ word: z.enum(["harbour", "tide", "crane"]) }) }),
  tool(({ quay }) => `${++calls} ships at the ${quay} quay`, { name: "count_ships", description: "Counts the ships.", schema: z.object({ quay: z.enum(["north", "south"]), large: z.boolean() }) }),
];
const model = new ChatOpenAI({ model: "default", temperature: 0, maxTokens: 256 });
const calling = model.bindTools(tools, { tool_choice: "required", parallel_tool_calls: false });
const speaking = new ChatOpenAI({ model: "default", temperature: 0, maxTokens: 16 }).bindTools(tools, { tool_choice: "none" });

const done = (state) => state.messages.filter((m) => m instanceof ToolMessage || m.getType() === "tool").length >= steps;
const graph = new StateGraph(MessagesAnnotation)
  .addNode("call", async (state) => ({ messages: [await calling.invoke(state.messages)] }))
  .addNode("tools", new ToolNode(tools))
  .addNode("speak", async (state) => ({ messages: [await speaking.invoke(state.messages)] }))
  .addEdge(START, "call")
  .addEdge("call", "tools")
  .addConditionalEdges("tools", (state) => (done(state) ? "speak" : "call"))
  .addEdge("speak", END)
  .compile();
const end = await graph.invoke(
  { messages: [{ role: "system", content: "Answer with the tools that you have." }, { role: "user", content: "How many ships are in the harbour?" }] },
  { recursionLimit: 4 * steps },
);
const last = end.messages.at(-1);
console.log(JSON.stringify({ calls, answers: end.messages.filter((m) => m.getType() === "ai").length, text: typeof last.content === "string" && last.getType() === "ai" }));
