#include "regard/chat_template.h"

#include <fmt/ranges.h>

#include <type_traits>

#include "base/check.h"
#include "text/jinja/interpreter.h"
#include "text/named_templates.h"

namespace regard {
namespace {

using jinja::Origin;
using jinja::Value;

Value text_value(std::string_view text, Origin origin) { return Value(jinja::MarkedText(std::string(text), origin)); }

// The given values as values of the interpreter; all text is marked as contents.
class Converter {
 public:
  explicit Converter(const jinja::Limits& limits) : limits_(limits) {}

  Value convert(const TemplateValue& given, int depth = 0) const {
    require_depth(depth);
    return std::visit([&](const auto& value) { return convert_one(value, depth); }, given.storage());
  }
  Value convert(const ChatMessage& message) const {
    auto dict = std::make_shared<jinja::Dict>();
    dict->set(text_value("role", Origin::kContent), text_value(message.role, Origin::kContent));
    if (!message.content.is_null()) dict->set(text_value("content", Origin::kContent), convert(message.content, 1));
    for (const auto& [name, value] : message.extra) {
      if (!value.is_null()) dict->set(text_value(name, Origin::kContent), convert(value, 1));
    }
    return Value(jinja::DictRef(std::move(dict)));
  }
  Value list(std::vector<Value> items) const {
    auto list = std::make_shared<jinja::List>();
    for (const Value& item : items) extend(list->extent, extent_of(item));
    list->items = std::move(items);
    return Value(jinja::ListRef(std::move(list)));
  }

 private:
  void require_depth(int depth) const {
    if (depth <= limits_.max_value_depth) return;
    fail(Code::kResourceExhausted, "[ChatTemplate::render] a value is nested deeper than {} levels", limits_.max_value_depth);
  }

  template <class T>
  Value convert_one(const T& value, int depth) const {
    if constexpr (std::is_same_v<T, std::nullptr_t>) {
      return Value(jinja::None{});
    } else if constexpr (std::is_same_v<T, std::string>) {
      return text_value(value, Origin::kContent);
    } else if constexpr (std::is_same_v<T, TemplateValue::Array>) {
      std::vector<Value> items;
      items.reserve(value.size());
      for (const TemplateValue& item : value) items.push_back(convert(item, depth + 1));
      return list(std::move(items));
    } else if constexpr (std::is_same_v<T, TemplateValue::Object>) {
      auto dict = std::make_shared<jinja::Dict>();
      for (const auto& [name, member] : value) dict->set(text_value(name, Origin::kContent), convert(member, depth + 1));
      return Value(jinja::DictRef(std::move(dict)));
    } else {
      return Value(value);
    }
  }

  const jinja::Limits& limits_;
};

jinja::Limits limits_from(const TemplateLimits& given) {
  jinja::Limits limits;
  limits.max_steps = given.max_steps;
  limits.max_output_bytes = given.max_output_bytes;
  limits.max_memory_bytes = given.max_memory_bytes;
  return limits;
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Limits limits;
  jinja::Template parsed;
  std::string source;
  std::string bos_token;
  std::string eos_token;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string_view bos_token, std::string_view eos_token,
                           const TemplateLimits& limits) {
  auto impl = std::make_shared<Impl>();
  impl->limits = limits_from(limits);
  impl->parsed = jinja::parse(source, impl->limits).value_or_throw();
  impl->source = source;
  impl->bos_token = bos_token;
  impl->eos_token = eos_token;
  impl_ = std::move(impl);
}

ChatTemplate ChatTemplate::named(std::string_view name, std::string_view bos_token, std::string_view eos_token,
                                 const TemplateLimits& limits) {
  for (const NamedTemplate& entry : named_templates()) {
    if (entry.name == name) return {entry.source, bos_token, eos_token, limits};
  }
  fail(Code::kNotFound, "[ChatTemplate::named] no template `{}`; there are: {}", name, fmt::join(list_names(), ", "));
}

std::vector<std::string> ChatTemplate::list_names() {
  std::vector<std::string> names;
  for (const NamedTemplate& entry : named_templates()) names.emplace_back(entry.name);
  return names;
}

const std::string& ChatTemplate::source() const noexcept { return impl_->source; }

std::vector<PromptSegment> ChatTemplate::render(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  const Converter converter(impl_->limits);
  std::vector<Value> converted;
  converted.reserve(messages.size());
  for (const ChatMessage& message : messages) converted.push_back(converter.convert(message));

  jinja::Variables variables;
  variables.emplace_back("bos_token", text_value(impl_->bos_token, Origin::kTemplate));
  variables.emplace_back("eos_token", text_value(impl_->eos_token, Origin::kTemplate));
  for (const auto& [name, value] : options.variables) variables.emplace_back(name, converter.convert(value));
  variables.emplace_back("messages", converter.list(std::move(converted)));
  variables.emplace_back("add_generation_prompt", Value(options.generation_prompt == GenerationPrompt::kYes));

  const jinja::Clock clock = [&options] { return options.now ? *options.now : local_time(); };
  const jinja::MarkedText text = jinja::render(impl_->parsed, variables, impl_->limits, clock);
  std::vector<PromptSegment> segments;
  text.for_each_run([&](std::string_view bytes, Origin origin) {
    segments.push_back({std::string(bytes), origin == Origin::kTemplate ? PromptSegment::Source::kTemplate : PromptSegment::Source::kContent});
  });
  return segments;
}

std::string ChatTemplate::render_text(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  std::string text;
  for (const PromptSegment& segment : render(messages, options)) text += segment.text;
  return text;
}

}  // namespace regard
