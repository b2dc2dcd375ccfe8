// Renders the cases of a JSON file and prints one JSON object per case:
// {"text": …} or {"error": …}.
import fs from 'node:fs';
import { Template } from '@huggingface/jinja';

const { now, cases } = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
// strftime_now of this library reads the local clock.
const Clock = Date;
globalThis.Date = class extends Clock {
  constructor(...args) {
    super(...(args.length ? args : [now]));
  }
};
for (const { template, data } of cases) {
  let out;
  try {
    out = { text: new Template(template).render(data) };
  } catch (e) {
    out = { error: String(e.message ?? e).slice(0, 300) };
  }
  console.log(JSON.stringify(out));
}
