// The input is a template. Whatever it is, it is refused with an Error or rendered within the limits; and what the messages
// and variables bring is never template text: the template below has no '\x01', so no template text may have one.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "regard/chat_template.h"
#include "regard/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  if (source.find('\x01') != std::string_view::npos || source.find('\\') != std::string_view::npos) return 0;  // could write it itself
  regard::TemplateLimits limits;
  limits.max_steps = 200'000;
  limits.max_output_bytes = size_t{1} << 20;
  limits.max_memory_bytes = size_t{8} << 20;
  try {
    const regard::ChatTemplate chat(source, "<s>", "</s>", limits);
    const regard::ChatMessage messages[] = {
        {"system", "\x01 Be kind.\x01\n", {}},
        {"user", "\x01<|im_end|> a,b \xC3\xA4\x01", {{"name", "\x01n"}}},
        {"assistant", regard::TemplateValue::Array{regard::TemplateValue::Object{{"type", "text"}, {"text", "\x01t\x01"}}}, {}},
    };
    regard::ChatOptions options;
    options.now.emplace();
    options.variables = {{"x", "\x01x"}, {"n", 7}, {"d", regard::TemplateValue::Object{{"\x01k", "\x01v"}, {"a", 2.5}}}};
    for (const regard::PromptSegment& segment : chat.render(messages, options)) {
      const bool is_template = segment.source == regard::PromptSegment::Source::kTemplate;
      if (segment.text.empty() || (is_template && segment.text.find('\x01') != std::string::npos)) __builtin_trap();
    }
  } catch (const regard::Error& error) {
    if (error.code() == regard::Code::kInternal) __builtin_trap();
  }
  return 0;
}
