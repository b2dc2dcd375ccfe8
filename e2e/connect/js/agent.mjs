// What the agent is about, whatever it talks to: its instructions, its tools and
// how it measures itself. None of it knows of weir.
export const steps = Number(process.argv[4]);

// Every session begins with the same instructions and a task of its own.
export const system = 'You are a careful engineer who works in a repository. ' + rule(40);
export const task = (name) => `Task ${name}: find out why the tests of package ${name} fail. ` + rule(12, name);

function rule(n, salt = '') {
  let text = '';
  for (let i = 0; i < n; i++) text += `Rule ${salt}${i}: look at file ${(i * 7919) % 101} before file ${(i * 104729) % 97}. `;
  return text;
}

export const tools = [
  tool('read_file', { path: { type: 'string', maxLength: 60 } }),
  tool('run_tests', { package: { type: 'string', maxLength: 40 }, verbose: { type: 'boolean' } }),
];

function tool(name, properties) {
  return {
    type: 'function',
    function: { name, description: `${name} of the repository`, parameters: { type: 'object', properties, required: Object.keys(properties), additionalProperties: false } },
  };
}

// runTool stands for real work: its output depends on the call only.
export function runTool(call, step) {
  let text = `step ${step}: ${call.function.name} returned\n`;
  for (let i = 0; i < 12; i++) text += `line ${i}: ${(step * 31 + i * 17) % 251} ok, ${(step * 13 + i * 29) % 241} failed\n`;
  return text;
}

// Meter writes one JSON line for each model call.
export class Meter {
  constructor(session) {
    this.session = session;
    this.step = 0;
  }
  sent(bytes) {
    this.began = performance.now();
    this.first = 0;
    this.bytes = bytes;
  }
  token() {
    if (!this.first) this.first = performance.now() - this.began;
  }
  done(prompt, cached, completion) {
    console.log(JSON.stringify({ session: this.session, step: this.step++, prompt, cached, completion, ttft_ms: this.first, bytes: this.bytes }));
  }
}

// collect puts a streamed answer together, as client libraries do.
export async function collect(response, meter) {
  if (!response.ok) throw new Error(`status ${response.status}: ${await response.text()}`);
  const message = { role: 'assistant', content: null };
  let usage, rest = '';
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data: {')) continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(JSON.stringify(event.error));
      usage = event.usage ?? usage;
      const delta = event.choices?.[0]?.delta ?? {};
      if (event.choices?.length) meter.token(); // the first piece comes with the first token
      if (delta.content) message.content = (message.content ?? '') + delta.content;
      for (const piece of delta.tool_calls ?? []) {
        message.tool_calls ??= [];
        const call = (message.tool_calls[piece.index] ??= { id: '', type: 'function', function: { name: '', arguments: '' } });
        call.id += piece.id ?? '';
        call.function.name += piece.function?.name ?? '';
        call.function.arguments += piece.function?.arguments ?? '';
      }
    }
  }
  meter.done(usage.prompt_tokens, usage.prompt_tokens_details?.cached_tokens ?? 0, usage.completion_tokens);
  return message;
}
