// `regard classify`: the class of each text, by a model that tells classes apart.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "input.h"
#include "model_options.h"
#include "regard/error.h"

namespace regard::cli {
namespace {

// Softmax in double: what the logits of a row say of each class.
std::vector<double> probabilities(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  double sum = 0;
  for (const float logit : logits) sum += p.emplace_back(std::exp(static_cast<double>(logit) - largest));
  for (double& one : p) one /= sum;
  return p;
}

struct Row {
  size_t best = 0;
  std::vector<double> probabilities;
};

Row read_row(std::span<const float> logits) {
  for (const float logit : logits)
    if (!std::isfinite(logit)) throw Error(Code::kNumeric, fmt::format("a logit is {}: the weights of this file hold such values, or lead to them", logit));
  Row row;
  row.probabilities = probabilities(logits);
  row.best = static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  return row;
}

std::string name_of(const ModelInfo& info, size_t number) { return info.class_names.empty() ? fmt::format("{}", number) : info.class_names[number]; }

void write_members(JsonWriter& json, const ModelInfo& info, const Row& row) {
  json.member("class", static_cast<int64_t>(row.best)).member("name", name_of(info, row.best)).key("probabilities").begin_array();
  for (const double p : row.probabilities) json.value(p);
  json.end();
}

void print_text(Context& context, const ModelInfo& info, std::string_view text, const Row& row) {
  if (!context.arguments.flag("json")) {
    context.out.print("{}\t{:.4f}\t{}\n", printable(name_of(info, row.best)), row.probabilities[row.best], printable(text));
    return;
  }
  JsonWriter json;
  json.begin_object().member("schema", 1);
  write_members(json, info, row);
  context.out.write(json.end().finish() + "\n");
}

void print_tokens(Context& context, const Model& model, std::span<const int32_t> ids, std::span<const float> logits) {
  const auto classes = static_cast<size_t>(model.info().num_classes);
  const bool as_json = context.arguments.flag("json");
  JsonWriter json;
  if (as_json) json.begin_object().member("schema", 1).key("tokens").begin_array();
  for (size_t t = 0; t < ids.size(); ++t) {
    const Row row = read_row(logits.subspan(t * classes, classes));
    const std::string& piece = model.tokenizer().token_text(ids[t]);
    if (as_json) {
      json.begin_object().member("id", ids[t]).member("piece", piece);
      write_members(json, model.info(), row);
      json.end();
    } else {
      context.out.print("{}\t{:.4f}\t{}\n", printable(name_of(model.info(), row.best)), row.probabilities[row.best], printable(piece));
    }
  }
  if (as_json) context.out.write(json.end().end().finish() + "\n");
  else context.out.write("\n");
}

// The text, or each line of the file.
std::vector<std::string> read_texts(const Arguments& arguments) {
  if (arguments.has_positional("TEXT")) {
    if (arguments.has("file")) throw UsageError("give TEXT or --file, not both");
    return {arguments.positional("TEXT")};
  }
  std::vector<std::string> texts = split(read_text_input("", false, arguments.text("file"), "TEXT"), '\n');
  if (!texts.empty() && texts.back().empty()) texts.pop_back();
  if (texts.empty()) throw UsageError("there is no text");
  return texts;
}

int run_classify(Context& context) {
  const Arguments& arguments = context.arguments;
  const Model model = load_model(context);
  const ModelInfo& info = model.info();
  if (info.num_classes == 0) throw Error(Code::kUnsupported, "this model predicts tokens and tells no classes apart; give a checkpoint of a run with data.objective class");
  const std::vector<std::string> texts = read_texts(arguments);
  const bool by_token = arguments.flag("tokens");
  const auto context_tokens = static_cast<size_t>(model.context()), classes = static_cast<size_t>(info.num_classes);
  size_t cut = 0;
  std::vector<float> logits;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<int32_t> ids = model.tokenizer().encode(texts[i], {SpecialTokens::kAsText, AddSpecial::kAsModel});
    if (ids.empty()) throw UsageError(fmt::format("text {} has no tokens", i + 1));
    cut += ids.size() > context_tokens ? 1 : 0;
    ids.resize(std::min(ids.size(), context_tokens));
    logits.resize(classes * (by_token ? ids.size() : 1));
    model.classify(ids, by_token ? ClassesOf::kTokens : ClassesOf::kText, logits.data(), &stop_token());
    if (by_token) print_tokens(context, model, ids, logits);
    else print_text(context, info, texts[i], read_row(logits));
  }
  if (cut > 0) context.messages.note(fmt::format("{} of {} texts are longer than the context of {} tokens; their beginnings were read", cut, texts.size(), context_tokens));
  return 0;
}

}  // namespace

Command classify_command() {
  std::vector<Option> options = {{.name = "file", .letter = 'f', .type = Type::kInputFile, .value = "FILE", .help = "Each line is a text; - is standard input.",
                                  .section = Section::kCommon},
                                 {.name = "tokens", .help = "Tells the class of each token, not of the whole text: a line for each, and an empty one behind a text.",
                                  .section = Section::kCommon},
                                 json_option()};
  return {
      .name = "classify",
      .summary = "tell the class of texts",
      .description = "Reads texts with a model that was trained to tell classes apart (data.objective class) and prints a line for each: the most likely class, its "
                     "probability and the text. With --json each line is an object: the number of the class, its name, and the probabilities of all classes in "
                     "their order. A text longer than the model's context is read as far as that.",
      .examples = {{"regard classify -m reviews/best \"A dull film.\"", "One text."},
                   {"regard classify -m reviews/best --file lines.txt --json", "A JSON object for each line."}},
      .positionals = {{"TEXT", "the text; without it, the lines of --file or of standard input", Presence::kOptional}},
      .options = join({model_options(), options}),
      .run = run_classify,
  };
}

}  // namespace regard::cli
