// The same agent, which names its session in a header.
import { steps, system, task, tools, runTool, Meter, collect } from './agent.mjs';

const [url, , , ...names] = process.argv.slice(2);

async function agent(name) {
  const meter = new Meter(name);
  const messages = [{ role: 'system', content: system }, { role: 'user', content: task(name) }];
  for (let step = 0; step < steps; step++) {
    const body = JSON.stringify({ messages, tools, tool_choice: 'required', parallel_tool_calls: false, max_tokens: 200, stream: true, stream_options: { include_usage: true } });
    meter.sent(body.length);
    const response = await fetch(url + '/v1/chat/completions', { method: 'POST', headers: { 'content-type': 'application/json', 'x-weir-session': name }, body });
    const answer = await collect(response, meter);
    messages.push(answer);
    for (const call of answer.tool_calls ?? []) {
      messages.push({ role: 'tool', tool_call_id: call.id, content: runTool(call, step) });
    }
  }
}

await Promise.all(names.map(agent));
