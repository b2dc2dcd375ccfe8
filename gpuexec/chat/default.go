package chat

// Fallback is the template of models that carry none, and of the generated ones:
// ChatML with tools and reasoning, as Hermes and Qwen models speak it. Reasoning
// stays in the prompt behind the last user message, which is within a loop of
// tool calls, and is left out before it. With enable_thinking false every answer
// begins with empty reasoning, the old ones too, so a prompt continues the last one.
const Fallback = `{%- set ns = namespace(last_user=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {%- set ns.last_user = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- set silent = enable_thinking is defined and not enable_thinking %}
{%- macro text(message) %}
    {%- if message.content is string %}
        {{- message.content }}
    {%- endif %}
{%- endmacro %}
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role in ['system', 'developer'] %}
        {{- text(messages[0]) + '\n\n' }}
    {%- endif %}
    {{- '# Tools\n\nThese functions can be called, one JSON object per line:\n<tools>\n' }}
    {%- for tool in tools %}
        {{- tool | tojson + '\n' }}
    {%- endfor %}
    {{- '</tools>\n\nTo call a function, write its name and arguments as JSON between these tags, once per call:\n<tool_call>\n{"name": <function name>, "arguments": <JSON object>}\n</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role in ['system', 'developer'] %}
        {%- if not (tools and loop.first) %}
            {{- '<|im_start|>system\n' + text(message) + '<|im_end|>\n' }}
        {%- endif %}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- if silent %}
            {{- '<think>\n\n</think>\n\n' }}
        {%- elif loop.index0 > ns.last_user and message.reasoning_content is string and message.reasoning_content %}
            {{- '<think>\n' + message.reasoning_content.strip('\n') + '\n</think>\n\n' }}
        {%- endif %}
        {{- text(message) }}
        {%- for call in message.tool_calls or [] %}
            {%- if not loop.first or text(message) %}
                {{- '\n' }}
            {%- endif %}
            {{- '<tool_call>\n{"name": ' + call.function.name | tojson + ', "arguments": ' }}
            {%- if call.function.arguments is string %}
                {{- call.function.arguments or '{}' }}
            {%- else %}
                {{- (call.function.arguments or {}) | tojson }}
            {%- endif %}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + text(message) + '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + text(message) + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if silent %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}`
