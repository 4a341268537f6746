// Chat templates: from messages to the prompt a model was trained on. Start with ChatTemplate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "regard/export.h"
#include "regard/tokenizer.h"

namespace regard {

/// A value given to a template, shaped like JSON: null, boolean, integer, number, text, array, object. An object keeps the
/// order of its members; of two members of one name the last counts.
class TemplateValue {
 public:
  using Array = std::vector<TemplateValue>;
  using Object = std::vector<std::pair<std::string, TemplateValue>>;
  using Storage = std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object>;

  TemplateValue() = default;
  TemplateValue(std::nullptr_t) {}
  TemplateValue(bool value) : storage_(value) {}
  TemplateValue(int value) : storage_(int64_t{value}) {}
  TemplateValue(int64_t value) : storage_(value) {}
  TemplateValue(double value) : storage_(value) {}
  TemplateValue(const char* value) : storage_(std::string(value)) {}
  TemplateValue(std::string_view value) : storage_(std::string(value)) {}
  TemplateValue(std::string value) : storage_(std::move(value)) {}
  TemplateValue(Array value) : storage_(std::move(value)) {}
  TemplateValue(Object value) : storage_(std::move(value)) {}

  const Storage& storage() const noexcept { return storage_; }
  bool is_null() const noexcept { return storage_.index() == 0; }

 private:
  Storage storage_;
};

/// One message of a conversation. `content` is text, or an array of parts for templates that know parts.
struct ChatMessage {
  std::string role;
  TemplateValue content;
  TemplateValue::Object extra;  ///< further fields as the template names them: tool_calls, reasoning_content, name ...
};

enum class GenerationPrompt { kNo, kYes };

/// How one prompt is made.
struct ChatOptions {
  /// Whether the prompt ends where the assistant is to go on (add_generation_prompt).
  GenerationPrompt generation_prompt = GenerationPrompt::kYes;
  /// Further variables of the template: tools, documents, enable_thinking, date_string ... They count as contents.
  TemplateValue::Object variables;
  /// The time for strftime_now; nothing means the local time of the call.
  std::optional<std::tm> now;
};

/// What a template may use. Reaching a limit is Error(kResourceExhausted).
struct TemplateLimits {
  uint64_t max_steps = 10'000'000;              ///< evaluated nodes; bytes of text cost 1/16 of one
  size_t max_output_bytes = size_t{16} << 20;   ///< of the prompt, and of any one text on the way
  size_t max_memory_bytes = size_t{256} << 20;  ///< of everything made on the way, freed or not
};

/// A chat template, written in the subset of Jinja that published models use, run in an interpreter that knows plain
/// values only: no files, no network, no objects of the program. What is outside of the subset is refused, never guessed;
/// map, select and their kin look at all items at once, so that they fail where Jinja may never look.
///
/// trim_blocks and lstrip_blocks are on, loops know break and continue, and raise_exception, strftime_now and tojson are as
/// in Hugging Face transformers. The variables are messages, add_generation_prompt, bos_token, eos_token and those of the
/// options. A field that is null is left out of its message, as transformers does.
///
/// Immutable after construction; all members may be called from several threads at once.
class REGARD_API ChatTemplate {
 public:
  /// Parses a template. Throws Error: kCorruptData when it is no Jinja, kUnsupported for Jinja that is not supported,
  /// kResourceExhausted for one that is too long or nested too deep; each with line, column and the text.
  ChatTemplate(std::string_view source, std::string_view bos_token, std::string_view eos_token,
               const TemplateLimits& limits = {});

  /// A template of this library by name, see list_names(). Throws Error(kNotFound) that lists the names.
  static ChatTemplate named(std::string_view name, std::string_view bos_token, std::string_view eos_token,
                            const TemplateLimits& limits = {});
  /// "chatml", "gemma", "llama3", "qwen": for files that have no template of their own.
  static std::vector<std::string> list_names();

  /// The prompt as Tokenizer::encode takes it: neighbours differ in their source, none is empty. What comes from messages and variables
  /// is never template text, also after the template has cut, trimmed, replaced or joined it. Errors: kInvalidArgument when
  /// the template refuses the messages (with its words) or fails on them, kUnsupported, kResourceExhausted.
  std::vector<PromptSegment> render(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;

  /// The same as one text. It must not be tokenized with special tokens on: contents could contain some.
  std::string render_text(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;

  /// The text of the template.
  const std::string& source() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace regard
