// The same agent on NATS: it sends only what is new, and the digest of the rest.
import { connect } from '@nats-io/transport-node';
import { steps, system, task, tools, runTool, Meter } from './agent.mjs';

const [, servers, , ...names] = process.argv.slice(2);
const nc = await connect({ servers });

// turn publishes a turn and waits for its result.
async function turn(session, id, body, meter) {
  const frames = nc.subscribe(`out.default.${session}.${id}`, { max: 1, callback: () => meter.token() });
  const results = nc.subscribe(`result.default.${session}.${id}`, { max: 1 });
  nc.publish(`agent.default.${session}.turn`, body);
  for await (const m of results) {
    frames.unsubscribe();
    const result = m.json();
    if (result.failure) throw new Error(JSON.stringify(result.failure));
    meter.done(result.usage.prompt, result.usage.cached, result.usage.completion);
    return result;
  }
}

async function agent(name) {
  const meter = new Meter(name);
  let known, messages = [{ role: 'system', content: system }, { role: 'user', content: task(name) }];
  for (let step = 0; step < steps; step++) {
    const weir = { turn: `${name}-${step}`, known };
    const body = JSON.stringify({ weir, messages, tools, tool_choice: 'required', parallel_tool_calls: false, max_tokens: 200 });
    meter.sent(body.length);
    const result = await turn(name, weir.turn, body, meter);
    const answer = result.message ?? {};
    known = result.known;
    messages = [];
    for (const call of answer.tool_calls ?? []) {
      messages.push({ role: 'tool', tool_call_id: call.id, content: runTool(call, step) });
    }
  }
}

await Promise.all(names.map(agent));
await nc.drain();
