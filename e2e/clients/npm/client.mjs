// Talks to weir with the official OpenAI client, unchanged: node client.mjs BASE_URL STEP.
// Each step prints one JSON line; what it means is for the Go test to say.
import OpenAI from "openai";

const [baseURL, step] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "unused", maxRetries: 0, timeout: 120_000 });
const ask = (text, rest = {}) => ({
  model: "default",
  messages: [{ role: "user", content: text }],
  max_tokens: 24,
  temperature: 0,
  ...rest,
});
const print = (v) => process.stdout.write(JSON.stringify(v) + "\n");

const parameters = { type: "object", properties: { word: { type: "string", enum: ["harbour", "tide"] } }, required: ["word"], additionalProperties: false };
const about = { name: "look_up", description: "Looks a word up.", parameters };

// failure tells of an error as the client's typed errors show it.
const failure = async (name, body, call = (b) => client.chat.completions.create(b)) => {
  try {
    await call(body);
    return { name, kind: "none" };
  } catch (e) {
    return { name, kind: e.constructor.name, status: e.status, code: e.code, param: e.param, type: e.type, message: e.message };
  }
};

const steps = {
  // whole: one answer in one piece, twice, so that the second finds the first one's blocks.
  async whole() {
    const text = "A long prompt, so that whole blocks are computed and found again. ".repeat(6);
    const first = await client.chat.completions.create(ask(text));
    const second = await client.chat.completions.create(ask(text));
    print({ first, second });
  },
  // stream: the same answer in pieces, with usage in the last chunk.
  async stream() {
    const body = ask("Tell me a story");
    const whole = await client.chat.completions.create(body);
    const stream = await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } });
    let text = "", chunks = 0, role = "", finish = null, usage = null;
    for await (const c of stream) {
      chunks++;
      if (c.usage) usage = c.usage;
      for (const choice of c.choices) {
        role ||= choice.delta.role ?? "";
        text += choice.delta.content ?? "";
        finish = choice.finish_reason ?? finish;
      }
    }
    print({ whole: whole.choices[0].message.content, text, chunks, role, finish, usage });
  },
  // abort: ends a long stream after a few chunks.
  async abort() {
    const stream = await client.chat.completions.create({ ...ask("Go on for ever"), max_tokens: 7000, ignore_eos: true, stream: true });
    let chunks = 0;
    for await (const _ of stream) {
      if (++chunks === 8) break; // leaving the loop aborts the request
    }
    print({ chunks, aborted: stream.controller.signal.aborted });
  },
  // tools: a call that is asked for, whole and in pieces, its result, and an answer.
  async tools() {
    const messages = [{ role: "user", content: "Look a word up." }];
    const body = { model: "default", temperature: 0, max_tokens: 256, messages, tools: [{ type: "function", function: about }], tool_choice: "required", parallel_tool_calls: false };
    const whole = await client.chat.completions.create(body);
    const stream = client.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
    let parts = 0;
    stream.on("tool_calls.function.arguments.delta", () => parts++);
    const streamed = await stream.finalChatCompletion();
    const answer = whole.choices[0].message;
    messages.push(answer, { role: "tool", tool_call_id: answer.tool_calls[0].id, content: "page 7" });
    const last = await client.chat.completions.create({ ...body, max_tokens: 16, tool_choice: "none" });
    print({ whole, streamed, parts, last });
  },
  // responses: an answer, the turn that continues it, a call in pieces, and what is stored.
  async responses() {
    const base = { model: "default", temperature: 0, max_output_tokens: 16 };
    const first = await client.responses.create({ ...base, instructions: "Be brief.", input: "Tell me about the harbour. ".repeat(12) });
    const second = await client.responses.create({ ...base, instructions: "Be brief.", previous_response_id: first.id, input: "And the tide?" });
    const forked = await client.responses.create({ ...base, previous_response_id: first.id, input: "And the cranes, how many are there?" });
    const stored = await client.responses.retrieve(first.id);
    const stream = client.responses.stream({
      ...base, max_output_tokens: 256, input: "Look a word up.", tools: [{ type: "function", strict: true, ...about }], tool_choice: "required", parallel_tool_calls: false,
    });
    const events = [];
    for await (const e of stream) events.push([e.sequence_number, e.type]);
    const called = await stream.finalResponse();
    print({ first, second, forked, stored, called, events });
  },
  async completions() {
    const r = await client.completions.create({ model: "default", prompt: "Once upon a time", max_tokens: 12, temperature: 0 });
    print(r);
  },
  async models() {
    const ids = [];
    for await (const m of client.models.list()) ids.push(m.id);
    print({ ids, one: await client.models.retrieve(ids[0]) });
  },
  async errors() {
    print([
      await failure("model", ask("x", { model: "no-such-model" })),
      await failure("temperature", ask("x", { temperature: 9 })),
      await failure("messages", { model: "default", messages: [] }),
      await failure("type", ask("x", { max_tokens: "many" })),
      await failure("long", ask("word ".repeat(20_000))),
      await failure("image", { model: "default", messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } }] }] }),
      await failure("unknown", ask("x", { no_such_field: 1 })),
      await failure("route", {}, () => client.embeddings.create({ model: "default", input: "x" })),
    ]);
  },
};

await steps[step]();
