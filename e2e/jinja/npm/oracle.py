"""Renders the cases of a JSON file with Jinja2, set up as transformers does, and
prints one JSON object per case: {"text": ...} or {"error": ...}."""

import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """The tag that marks an assistant's tokens in training."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


with open(sys.argv[1], encoding="utf-8") as file:
    given = json.load(file)
now = datetime.datetime.fromtimestamp(given["now"] / 1000, datetime.timezone.utc)
env = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols, jinja2.ext.do]
)
env.filters["tojson"] = to_json
env.globals["raise_exception"] = refuse
env.globals["strftime_now"] = now.strftime
for case in given["cases"]:
    try:
        out = {"text": env.from_string(case["template"]).render(**case["data"])}
    except Exception as e:
        out = {"error": str(e)[:300] or type(e).__name__}
    print(json.dumps(out))
