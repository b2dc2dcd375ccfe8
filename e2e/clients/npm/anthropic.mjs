// Talks to weir with the official Anthropic client, unchanged: ANTHROPIC_BASE_URL says
// where the model is. node anthropic.mjs STEP
// Each step prints one JSON line; what it means is for the Go test to say.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ maxRetries: 0, timeout: 120_000 });
const print = (v) => process.stdout.write(JSON.stringify(v) + "\n");
const ask = (text, rest = {}) => ({ model: "default", max_tokens: 24, temperature: 0, messages: [{ role: "user", content: text }], ...rest });
const tools = [
  { name: "look_up", description: "Looks a word up.", input_schema: { type: "object", properties: { word: { type: "string", enum: ["harbour", "tide"] } }, required: ["word"], additionalProperties: false } },
];

const failure = async (name, call) => {
  try {
    await call();
    return { name, kind: "none" };
  } catch (e) {
    return { name, kind: e.constructor.name, status: e.status, type: e.error?.error?.type, message: e.message };
  }
};

const steps = {
  // whole: one answer in one piece, twice, so that the second finds the first one's blocks.
  async whole() {
    const body = ask("A long prompt, so that whole blocks are computed and found again. ".repeat(6), { system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }] });
    print({ first: await client.messages.create(body), second: await client.messages.create(body) });
  },
  // stream: the same answer in pieces, put together by the client.
  async stream() {
    const body = ask("Tell me a story");
    const whole = await client.messages.create(body);
    const stream = client.messages.stream(body);
    const events = [];
    let text = "";
    stream.on("streamEvent", (e) => events.push(e.type));
    stream.on("text", (t) => (text += t));
    const last = await stream.finalMessage();
    print({ whole, last, text, events: [...new Set(events)], deltas: events.filter((e) => e === "content_block_delta").length });
  },
  // tools: a call that is asked for, its result, and an answer; whole and as a stream.
  async tools() {
    const messages = [{ role: "user", content: "Look a word up." }];
    const body = { model: "default", max_tokens: 256, temperature: 0, tools, tool_choice: { type: "any", disable_parallel_tool_use: true }, messages };
    const first = await client.messages.create(body);
    const streamed = await client.messages.stream(body).finalMessage();
    const use = first.content.find((b) => b.type === "tool_use");
    messages.push({ role: "assistant", content: first.content }, { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "page 7" }] });
    const second = await client.messages.create({ ...body, max_tokens: 16, tool_choice: { type: "none" } });
    print({ first, streamed, second });
  },
  async count() {
    const body = ask("How long is this?");
    const answer = await client.messages.create(body);
    const { max_tokens, temperature, ...counted } = body;
    print({ counted: await client.messages.countTokens(counted), usage: answer.usage });
  },
  // stop: an answer that ends at a string that is in it.
  async stop() {
    const body = ask("Tell me a story");
    const whole = await client.messages.create(body);
    const text = whole.content[0].text;
    const at = text.length >> 1;
    const sequence = text.slice(at, at + 3);
    print({ text, sequence, stopped: await client.messages.create({ ...body, stop_sequences: [sequence] }) });
  },
  async models() {
    const ids = [];
    for await (const m of client.models.list()) ids.push(m.id);
    print({ ids, one: await client.models.retrieve(ids[0]) });
  },
  async errors() {
    print([
      await failure("model", () => client.messages.create(ask("x", { model: "no-such-model" }))),
      await failure("temperature", () => client.messages.create(ask("x", { temperature: 9 }))),
      await failure("messages", () => client.messages.create(ask("x", { messages: [] }))),
      await failure("max_tokens", () => client.messages.create({ ...ask("x"), max_tokens: undefined })),
      await failure("long", () => client.messages.create(ask("word ".repeat(20_000)))),
      await failure("image", () => client.messages.create(ask([{ type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } }]))),
      await failure("server tool", () => client.messages.create(ask("x", { tools: [{ type: "web_search_20250305", name: "web_search" }] }))),
      await failure("unknown", () => client.messages.create(ask("x", { no_such_field: 1 }))),
    ]);
  },
};

await steps[process.argv[2]]();
