// Each writes what the published template of its family writes for system, user and assistant messages. Tools are left
// to the template of the model's own file.
#include "text/named_templates.h"

#include <array>

namespace regard {
namespace {

constexpr std::string_view kChatMl = R"({% for message in messages %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
)";

constexpr std::string_view kLlama3 = R"({% for message in messages %}
{% if loop.first %}{{ bos_token }}{% endif %}
<|start_header_id|>{{ message.role }}<|end_header_id|>

{{ message.content | trim }}<|eot_id|>
{%- endfor %}
{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{{ '\n\n' }}{% endif %}
)";

// A system message has no turn of its own: it stands before the text of the first one. Parts that are no text have no
// place in a text model, apart from the mark of an image.
constexpr std::string_view kGemma = R"(
{%- macro parts(content) -%}
  {%- if content is string -%}
    {{- content | trim -}}
  {%- else -%}
    {%- for part in content -%}
      {{- '<start_of_image>' if part.type == 'image' else part.text | trim if part.type == 'text' -}}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- set start = namespace(text='', turns=messages) -%}
{%- if messages[0].role == 'system' -%}
  {%- set system = messages[0].content -%}
  {%- set start.text = (system if system is string else system[0].text) + '\n\n' -%}
  {%- set start.turns = messages[1:] -%}
{%- endif -%}
{{- bos_token -}}
{%- for message in start.turns -%}
  {%- if message.role != ['user', 'assistant'][loop.index0 % 2] and (message.role == 'user' or loop.index0 % 2 == 0) -%}
    {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') -}}
  {%- endif -%}
  {{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else message.role) ~ '\n' -}}
  {{- start.text if loop.first -}}
  {{- parts(message.content) ~ '<end_of_turn>\n' -}}
{%- endfor -%}
{{- '<start_of_turn>model\n' if add_generation_prompt -}}
)";

// Thoughts stay only in answers after the last question; the thinking can be turned off with enable_thinking = false.
constexpr std::string_view kQwen = R"(
{%- set last = namespace(question=messages | length - 1, found=false) -%}
{%- for message in messages[::-1] -%}
  {%- set answers_tool = message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>') -%}
  {%- if not last.found and message.role == 'user' and not answers_tool -%}
    {%- set last.found = true -%}
    {%- set last.question = loop.revindex0 -%}
  {%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- if message.role != 'assistant' -%}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' -}}
  {%- else -%}
    {%- set thoughts, answer = '', message.content -%}
    {%- if message.reasoning_content is string -%}
      {%- set thoughts = message.reasoning_content -%}
    {%- elif '</think>' in answer -%}
      {%- set thoughts = answer.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
      {%- set answer = answer.split('</think>')[-1].lstrip('\n') -%}
    {%- endif -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- if loop.index0 > last.question and (loop.last or thoughts) -%}
      {{- '<think>\n' ~ thoughts.strip('\n') ~ '\n</think>\n\n' -}}
      {%- set answer = answer.lstrip('\n') -%}
    {%- endif -%}
    {{- answer ~ '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
  {{- '<think>\n\n</think>\n\n' if enable_thinking is false -}}
{%- endif -%}
)";

constexpr auto kTemplates = std::to_array<NamedTemplate>({
    {"chatml", kChatMl},
    {"gemma", kGemma},
    {"llama3", kLlama3},
    {"qwen", kQwen},
});

}  // namespace

std::span<const NamedTemplate> named_templates() noexcept { return kTemplates; }

}  // namespace regard
