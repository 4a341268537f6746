// `regard tokens train`: a tokenizer from texts, written as a tokenizer.json.
#include <fmt/format.h>

#include "input.h"
#include "regard/json.h"
#include "regard/runtime.h"
#include "regard/tokenizer_training.h"

namespace regard::cli {
namespace {

TokenizerKind read_kind(const Arguments& arguments) {
  const std::string& kind = arguments.text("kind");
  return kind == "bpe" ? TokenizerKind::kBytePairs : kind == "bytes" ? TokenizerKind::kBytes : TokenizerKind::kCharacters;
}

int run_train(Context& context) {
  const Arguments& arguments = context.arguments;
  TokenizerTraining training;
  training.kind = read_kind(arguments);
  const bool byte_pairs = training.kind == TokenizerKind::kBytePairs;
  if (byte_pairs != arguments.has("vocab-size")) {
    throw UsageError(byte_pairs ? "--kind bpe needs --vocab-size" : "--vocab-size is for --kind bpe; the other kinds keep what the text has");
  }
  if (byte_pairs) training.vocab_size = arguments.integer("vocab-size");
  if (arguments.has("min-count")) training.min_count = arguments.integer("min-count");
  if (arguments.flag("unk")) training.unknown = UnknownCharacters::kToken;
  training.special = arguments.list("special");
  training.stop = &stop_token();
  training.progress = [&](std::string_view what, uint64_t done, uint64_t total) { context.messages.progress(what, done, total); };

  const std::string out = output_path(arguments, "out", kJsonMagic);
  std::vector<std::string> texts;
  for (const std::string& path : arguments.positional_list("FILE")) texts.push_back(read_text(path));
  const TrainedTokenizer trained = train_tokenizer(texts, training);
  context.messages.end_progress();
  save_file(out, trained.json);
  const int32_t tokens = trained.tokenizer.vocab_size();
  if (arguments.flag("json")) {
    context.out.write(JsonWriter().begin_object().member("schema", 1).member("file", out).member("tokens", tokens).end().finish() + "\n");
  } else {
    context.messages.note(fmt::format("wrote a tokenizer with {} tokens to {}", tokens, out));
  }
  if (byte_pairs && tokens < training.vocab_size) {
    context.messages.note(fmt::format("no pair is left that occurs often enough for the {} tokens asked for", training.vocab_size));
  }
  return 0;
}

}  // namespace

Command tokens_train_command() {
  return {
      .name = "tokens train",
      .summary = "make a tokenizer from texts",
      .description = "Writes a tokenizer.json with one token per character of the texts, one per byte, or byte-level BPE. Hugging Face tokenizers "
                     "gives the same ids from it. The same texts and options give the same file.",
      .examples = {{"regard tokens train poems.txt --out tokenizer.json", "One token per character."},
                   {"regard tokens train a.txt b.txt --kind bpe --vocab-size 4096 --special '<|endoftext|>' --out tokenizer.json",
                    "4,096 tokens: bytes, merges and one special token."}},
      .positionals = {{"FILE", "a text; - is standard input", Presence::kRequired, Repeat::kMany, Type::kInputFile}},
      .options = {{.name = "out", .letter = 'o', .type = Type::kOutputFile, .value = "FILE", .help = "Where to write the tokenizer.json.",
                   .presence = Presence::kRequired, .section = Section::kCommon},
                  {.name = "kind", .type = Type::kChoice, .value = "KIND", .help = "What a token is.", .fallback = "chars",
                   .choices = "chars|bytes|bpe", .section = Section::kCommon},
                  {.name = "vocab-size", .type = Type::kInteger, .value = "N",
                   .help = "For bpe: tokens in all, the 256 bytes and special ones included.", .unit = "tokens", .min = 256, .max = 1000000,
                   .section = Section::kCommon},
                  {.name = "min-count", .type = Type::kInteger, .value = "N",
                   .help = "Leaves out characters (with --unk), or pairs, that occur less often; without it 1 for chars and 2 for bpe.", .min = 1,
                   .max = 1e15},
                  {.name = "unk", .help = "For chars: a token <unk> stands for characters without a token; else they are an error."},
                  {.name = "special", .type = Type::kText, .value = "TOKEN",
                   .help = "A token that text never becomes by itself; may be given many times. They are the last ids.", .repeat = Repeat::kMany},
                  force_option(),
                  json_option()},
      .run = run_train,
  };
}

}  // namespace regard::cli
