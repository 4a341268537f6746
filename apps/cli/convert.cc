// `regard convert`: a Hugging Face directory into a GGUF file, a GGUF file into a directory.
#include <fmt/format.h>

#include "command.h"
#include "input.h"
#include "regard/convert.h"
#include "regard/json.h"
#include "terminal.h"

namespace regard::cli {
namespace {

int run_convert(Context& context) {
  const Arguments& arguments = context.arguments;
  ConvertOptions options;
  const std::string type = arguments.has("type") ? arguments.text("type") : "";
  for (const auto& [name, value] : {std::pair{"f32", DType::kF32}, std::pair{"f16", DType::kF16}, std::pair{"bf16", DType::kBF16}, std::pair{"q8_0", DType::kQ8_0}})
    if (type == name) options.type = value;
  if (arguments.flag("without-tokenizer")) options.tokenizer = ConvertOptions::Tokenizer::kLeaveOut;
  if (arguments.flag("force")) options.existing = ConvertOptions::Existing::kReplace;
  options.stop = &stop_token();
  const std::string to = arguments.positional("OUT");
  for (const char* name : {"IN", "OUT"}) {
    const std::string& path = arguments.positional(name);
    if (path.empty()) throw UsageError(fmt::format("{} is empty; give a name", name));
    if (path == "-") throw UsageError(fmt::format("{} is -; models are not sent through pipes, give a name", name));
  }
  if (to.ends_with(".gguf")) check_place(to);
  const ConvertReport report = convert_model(arguments.positional("IN"), to, options);
  const bool json_wanted = arguments.flag("json");  // which has the same numbers
  if (report.added_rows > 0 && !json_wanted)
    context.messages.note(fmt::format("{} tokens were added, which a GGUF file of characters needs: bytes and <unk>. Regard leaves them out; in other programs {}",
                                      report.added_rows, report.added_unlikely ? "they are too unlikely to be drawn" : "they are as likely as the mean, and --min-p 0.05 keeps them out"));
  if (report.f16_instead > 0 && !json_wanted)
    context.messages.note(fmt::format("{} matrices are f16: their rows are no multiple of 32", report.f16_instead));
  if (json_wanted) {
    JsonWriter json;
    json.begin_object().member("schema", 1).member("family", report.family).member("tensors", report.tensors);
    json.member("tensor_bytes", report.tensor_bytes).member("added_rows", report.added_rows).member("added_unlikely", report.added_unlikely).member("f16_instead", report.f16_instead).member("out", to);
    context.out.write(json.end().finish() + "\n");
    return 0;
  }
  context.out.print("wrote {}: {} tensors of a {} model, {} bytes\n", printable(to), report.tensors, report.family, report.tensor_bytes);
  return 0;
}

}  // namespace

Command convert_command() {
  return {
      .name = "convert",
      .summary = "turn a Hugging Face directory into a GGUF file, or back",
      .description = "Writes the model in the other format, tokenizer included: a name that ends in .gguf is a GGUF file, any other one a directory. "
                     "Families: llama, qwen2, qwen3, gemma2, gemma3, gpt2. What the other format cannot say is refused by name.",
      .examples = {{"regard convert run/latest model.gguf --type f32", "A trained model for llama.cpp."},
                   {"regard convert model.gguf checkpoint --type bf16 --without-tokenizer",
                    "A GGUF file for transformers, with token ids alone; a tokenizer of byte-level BPE, as SmolLM2 has, comes along without the last option."}},
      .positionals = {{.name = "IN", .help = "a directory with config.json and safetensors, or a GGUF file", .type = Type::kInputFile},
                      {.name = "OUT", .help = "what to write"}},
      .options = {{.name = "type", .type = Type::kChoice, .value = "TYPE",
                   .help = "What matrices are stored in; without it, what they are stored in now. q8_0 is for GGUF files.",
                   .choices = "f32|f16|bf16|q8_0", .section = Section::kCommon},
                  {.name = "force", .help = "Replaces what is there.", .section = Section::kCommon},
                  {.name = "without-tokenizer", .help = "Leaves the tokenizer out; the result works with token ids alone."},
                  json_option()},
      .run = run_convert,
  };
}

}  // namespace regard::cli
