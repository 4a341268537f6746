// `regard tokens encode|decode`: text to token ids and back.
#include <fmt/format.h>

#include "input.h"
#include "model_options.h"

namespace regard::cli {
namespace {

Option model_only_option() {
  Option option = model_options().front();
  option.help = "A GGUF file, a tokenizer.json, or a directory that has one.";
  return option;
}

int run_encode(Context& context) {
  const Arguments& arguments = context.arguments;
  const Tokenizer tokenizer = load_tokenizer(arguments);
  const std::string text = read_text_input(arguments.positional("TEXT"), arguments.has_positional("TEXT"), arguments.text("file"), "TEXT");
  EncodeOptions options;
  options.special = arguments.flag("special") ? SpecialTokens::kParse : SpecialTokens::kAsText;
  options.add = arguments.flag("add-special") ? AddSpecial::kAsModel : AddSpecial::kNone;
  const std::vector<int32_t> ids = tokenizer.encode(text, options);
  if (tokenizer.decode(ids, {.special = SpecialText::kShow, .invalid = InvalidUtf8::kKeep}).size() < text.size())
    context.messages.note("the vocabulary has no token for some bytes of the text; they are left out, or changed by the file's normalisation");
  if (arguments.flag("json")) {
    JsonWriter json;
    json.begin_object().member("schema", 1).key("ids").begin_array();
    for (const int32_t id : ids) json.value(id);
    json.end().key("pieces").begin_array();
    for (const int32_t id : ids) json.value(tokenizer.token_text(id));
    context.out.write(json.end().end().finish() + "\n");
    return 0;
  }
  if (!arguments.flag("pieces")) {
    context.out.print("{}\n", fmt::join(ids, " "));
    return 0;
  }
  for (const int32_t id : ids) context.out.print("{}\t{}\n", id, tokenizer.token_text(id));
  return 0;
}

int run_decode(Context& context) {
  const Arguments& arguments = context.arguments;
  const Tokenizer tokenizer = load_tokenizer(arguments);
  const std::string text = read_text_input(arguments.positional("IDS"), arguments.has_positional("IDS"), arguments.text("file"), "IDS");
  const std::vector<int32_t> ids = parse_ids(text, "IDS");
  DecodeOptions options;
  options.special = arguments.flag("special") ? SpecialText::kShow : SpecialText::kSkip;
  // Without JSON the bytes go out as they are, so that encode and decode give back any file exactly.
  options.invalid = arguments.flag("json") ? InvalidUtf8::kReplace : InvalidUtf8::kKeep;
  const std::string decoded = tokenizer.decode(ids, options);
  if (arguments.flag("json")) {
    context.out.write(JsonWriter().begin_object().member("schema", 1).member("text", decoded).end().finish() + "\n");
    return 0;
  }
  context.out.write(decoded);
  if (!arguments.flag("no-newline")) context.out.write("\n");
  return 0;
}

}  // namespace

Command tokens_encode_command() {
  return {
      .name = "tokens encode",
      .summary = "turn text into token ids",
      .description = "Prints the token ids of a text, with spaces between them. Text such as <|im_end|> stays text unless --special is given.",
      .examples = {{"regard tokens encode -m model.gguf \"The sea\"", "The ids of a short text."},
                   {"regard tokens encode -m model.gguf --file story.txt --json", "Ids and pieces of a file, for a script."}},
      .positionals = {{"TEXT", "the text; without it, --file or standard input", Presence::kOptional}},
      .options = {model_only_option(),
                  {.name = "file", .letter = 'f', .type = Type::kInputFile, .value = "FILE",
                   .help = "A file with the text; - is standard input.", .section = Section::kCommon},
                  {.name = "special", .help = "Reads special tokens in the text.", .section = Section::kCommon},
                  {.name = "add-special", .help = "Adds the tokens that the model wants around a text.", .section = Section::kCommon},
                  {.name = "pieces", .help = "Prints one line per token: id and piece.", .section = Section::kCommon},
                  json_option()},
      .run = run_encode,
  };
}

Command tokens_decode_command() {
  return {
      .name = "tokens decode",
      .summary = "turn token ids into text",
      .description = "Prints the text of token ids. Bytes that are no UTF-8 are printed as they are; in JSON they are replaced.",
      .examples = {{"regard tokens decode -m model.gguf \"504 3426\"", "The text of two ids."},
                   {"regard tokens encode -m model.gguf Hello | regard tokens decode -m model.gguf", "There and back."}},
      .positionals = {{"IDS", "the ids, such as '1 2 3'; without it, --file or standard input", Presence::kOptional}},
      .options = {model_only_option(),
                  {.name = "file", .letter = 'f', .type = Type::kInputFile, .value = "FILE",
                   .help = "A file with the ids; - is standard input.", .section = Section::kCommon},
                  {.name = "special", .help = "Shows special tokens.", .section = Section::kCommon},
                  {.name = "no-newline", .help = "Adds no line end to the text.", .section = Section::kCommon},
                  json_option()},
      .run = run_decode,
  };
}

}  // namespace regard::cli
