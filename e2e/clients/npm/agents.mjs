// A tool loop with the OpenAI Agents package, unchanged: OPENAI_BASE_URL says where the
// model is. node agents.mjs chat_completions|responses STEPS
import { Agent, run, setOpenAIAPI, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";

const [api, steps] = [process.argv[2], Number(process.argv[3])];
setOpenAIAPI(api);
setTracingDisabled(true); // traces go to OpenAI, not to the base URL

let calls = 0;
const step = (name, description, parameters, answer) =>
  tool({ name, description, parameters, execute: async (args) => (calls++, answer(args)) });
const tools = [
  step("look_up", "Looks a word up.", z.object({ word: z.enum(["harbour", "tide", "crane"]) }), ({ word }) => `${word}: page ${calls}`),
  step("count_ships", "Counts the ships.", z.object({ quay: z.enum(["north", "south"]), large: z.boolean() }), ({ quay }) => `${calls} ships at the ${quay} quay`),
];
const base = { name: "Harbour master", instructions: "Answer with the tools that you have.", model: "default", tools };
const modelSettings = { toolChoice: "required", parallelToolCalls: false, maxTokens: 256, temperature: 0 };
const worker = new Agent({
  ...base, modelSettings,
  resetToolChoice: false, // every step is a call: the model's weights are random
  toolUseBehavior: async (_context, results) => ({ isFinalOutput: calls >= steps, isInterrupted: undefined, finalOutput: String(results.length) }),
});
const worked = await run(worker, "How many ships are in the harbour? Session " + api, { maxTurns: steps + 2 });
// The last answer is text, and has an end because it has a schema.
const speaker = new Agent({
  ...base, modelSettings: { ...modelSettings, toolChoice: "none" }, outputType: z.object({ ships: z.enum(["many", "few"]) }),
});
const said = await run(speaker, worked.history, { maxTurns: 1 });
console.log(JSON.stringify({ calls, answers: worked.rawResponses.length + said.rawResponses.length, text: ["many", "few"].includes(said.finalOutput?.ships) }));
