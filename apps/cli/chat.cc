// `regard chat`: a conversation. The cache of keys and values is kept between turns: each turn renders the whole conversation,
// and only the tokens behind what the cache already holds are computed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "input.h"
#include "model_options.h"
#include "regard/chat_template.h"
#include "regard/error.h"

namespace regard::cli {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 20;

// --template NAME or FILE, else the file's own.
ChatTemplate read_template(const Arguments& arguments, const Model& model) {
  const Tokenizer& tokenizer = model.tokenizer();
  const auto piece = [&tokenizer](std::optional<int32_t> id) { return id ? tokenizer.token_text(*id) : std::string(); };
  const std::string bos = piece(tokenizer.bos()), eos = piece(tokenizer.eos());
  const std::string& wanted = arguments.text("template");
  const std::vector<std::string> names = ChatTemplate::list_names();
  if (!wanted.empty()) {
    if (std::find(names.begin(), names.end(), wanted) != names.end()) return ChatTemplate::named(wanted, bos, eos);
    if (access(wanted.c_str(), F_OK) != 0) {
      throw Error(Code::kNotFound, fmt::format("--template {} is neither a file nor one of {}", wanted, fmt::join(names, ", ")));
    }
    return ChatTemplate(read_text(wanted), bos, eos);
  }
  if (!model.chat_template()) {
    throw Error(Code::kNotFound, fmt::format("this model file has no chat template; give --template with a file or one of {}", fmt::join(names, ", ")));
  }
  return ChatTemplate(*model.chat_template(), bos, eos);
}

std::vector<int32_t> conversation_ids(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages) {
  const std::vector<PromptSegment> segments = chat.render(messages);
  return tokenizer.encode(segments);
}

// What the sequence remembers already; at least one token must be left to compute.
size_t common_prefix(const std::vector<int32_t>& known, const std::vector<int32_t>& wanted) {
  const auto [a, b] = std::mismatch(known.begin(), known.end(), wanted.begin(), wanted.end());
  return std::min(static_cast<size_t>(b - wanted.begin()), wanted.empty() ? 0 : wanted.size() - 1);
}

class Conversation {
 public:
  Conversation(Context& context, const Model& model)
      : context_(context), model_(model), chat_(read_template(context.arguments, model)), sequence_(model),
        options_(read_generate_options(context.arguments)) {
    if (const auto eot = model.tokenizer().eot()) options_.stop_ids.push_back(*eot);
    if (context.arguments.has("system")) messages_.push_back({"system", context.arguments.text("system"), {}});
  }

  // One turn: false when it was stopped.
  bool answer(const std::string& text) {
    messages_.push_back({"user", text, {}});
    const std::vector<int32_t> ids = conversation_ids(chat_, model_.tokenizer(), messages_);
    const size_t kept = common_prefix(sequence_.tokens(), ids);
    sequence_.truncate(static_cast<int64_t>(kept));
    const bool json_wanted = context_.arguments.flag("json");
    OnToken on_token;
    if (!json_wanted) {
      on_token = [this](const TokenEvent& event) {
        context_.out.write(event.text);
        context_.out.flush();
        return true;
      };
    }
    const Generation generation = generate(model_, sequence_, std::span(ids).subspan(kept), options_, on_token, turn_);
    if (json_wanted) {
      JsonWriter json;
      json.begin_object().member("schema", 1).member("turn", turn_).member("cached_tokens", uint64_t{kept});
      write_generation(json, generation, model_);
      context_.out.write(json.end().finish());
    }
    context_.out.write("\n");
    context_.out.flush();
    messages_.push_back({"assistant", generation.text, {}});
    ++turn_;
    if (generation.finish != FinishReason::kCancelled && !json_wanted) context_.messages.note(fmt::format("{} kept; {}", kept, speed_text({&generation, 1})));
    return generation.finish != FinishReason::kCancelled;
  }

 private:
  Context& context_;
  const Model& model_;
  ChatTemplate chat_;
  Sequence sequence_;
  GenerateOptions options_;
  std::vector<ChatMessage> messages_;
  uint64_t turn_ = 0;
};

int run_chat(Context& context) {
  const Model model = load_model(context);
  if (model.info().architecture != "decoder")
    throw Error(Code::kUnsupported, fmt::format("a conversation takes a decoder, and this model is an {}; regard generate has it write about a text", model.info().architecture));
  Conversation conversation(context, model);
  if (context.arguments.has("prompt")) {
    conversation.answer(context.arguments.text("prompt"));
    return 0;
  }
  const bool terminal = is_terminal(STDIN_FILENO) && is_terminal(STDERR_FILENO);
  if (terminal) context.messages.note("one message per line; Ctrl-D ends");
  for (;;) {
    if (terminal) context.messages.ask("> ");
    const std::optional<std::string> line = read_line(kMaxLineBytes);
    if (!line) break;
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    if (!conversation.answer(*line)) break;
  }
  return 0;
}

}  // namespace

Command chat_command() {
  return {
      .name = "chat",
      .summary = "talk with a model",
      .description = "Reads one message per line and answers each, with the model's chat template. What was said stays in the cache, so a turn "
                     "costs its own tokens only. Special tokens in messages stay text. Ctrl-D ends; Ctrl-C stops an answer and ends.",
      .examples = {{"regard chat -m model.gguf --system \"Answer briefly.\"", "A conversation at the terminal."},
                   {"regard chat -m model.gguf --prompt \"What is a fugue?\" -n 200", "One question, one answer."}},
      .positionals = {},
      .options = join({model_options(),
                       {
                           {.name = "prompt", .letter = 'p', .type = Type::kText, .value = "TEXT",
                            .help = "One message to answer, instead of lines of standard input.", .section = Section::kCommon},
                           {.name = "system", .letter = 's', .type = Type::kText, .value = "TEXT",
                            .help = "What the model is told before the conversation.", .section = Section::kCommon},
                           {.name = "template", .type = Type::kText, .value = "NAME|FILE",
                            .help = "Chat template to use instead of the file's own: chatml, gemma, llama3, qwen, or a file.",
                            .section = Section::kCommon},
                           json_option(),
                       },
                       sampling_options()}),
      .run = run_chat,
  };
}

}  // namespace regard::cli
