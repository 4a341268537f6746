// `regard info`: what is inside a model file. Reads the description, never runs anything.
#include <fmt/format.h>

#include "model_options.h"

namespace regard::cli {
namespace {

std::string size_text(uint64_t bytes) {
  constexpr double kMebi = 1048576.0;
  const auto b = static_cast<double>(bytes);
  if (b < kMebi) return fmt::format("{} bytes", bytes);
  return b < 1024 * kMebi ? fmt::format("{:.1f} MiB", b / kMebi) : fmt::format("{:.2f} GiB", b / (1024 * kMebi));
}

// Three digits that count: "110 thousand", "1.47 million".
std::string count_text(int64_t count) {
  auto value = static_cast<double>(count);
  const char* unit = "";
  for (const char* next : {" thousand", " million", " billion"}) {
    if (value < 999.5) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.{}f}{}", value, *unit == '\0' || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, unit);
}

int run_info(Context& context) {
  const Arguments& arguments = context.arguments;
  const ModelInfo info = Model::describe(arguments.text("model"));
  const int64_t tokens = arguments.has("context") ? arguments.integer("context") : info.context;
  const uint64_t cache = info.cache_bytes_per_token * static_cast<uint64_t>(tokens);
  const uint64_t total = info.weight_bytes + cache + info.workspace_bytes;
  if (arguments.flag("json")) {
    JsonWriter json;
    json.begin_object().member("schema", 1);
    json.member("family", info.family).member("name", info.name).member("format", info.format);
    json.member("architecture", info.architecture).member("encoder_layers", info.num_encoder_layers);
    json.member("layers", info.num_layers).member("hidden_size", info.hidden_size).member("q_heads", info.num_q_heads);
    json.member("kv_heads", info.num_kv_heads).member("head_dim", info.head_dim).member("ffn_size", info.ffn_size);
    json.member("vocab_size", info.vocab_size).member("classes", info.num_classes).key("class_names").begin_array();
    for (const std::string& name : info.class_names) json.value(name);
    json.end().member("context", info.context).member("max_context", info.max_context).member("window", info.window);
    json.member("parameters", info.num_parameters).key("tensor_types").begin_object();
    for (const auto& [type, count] : info.tensor_types) json.member(type, count);
    json.end().member("tokenizer", info.has_tokenizer).member("chat_template", info.has_chat_template);
    json.member("file_bytes", info.file_bytes).member("weight_bytes", info.weight_bytes);
    json.member("cache_bytes_per_token", info.cache_bytes_per_token).member("workspace_bytes", info.workspace_bytes);
    json.key("memory").begin_object().member("tokens", tokens).member("bytes", total).end();
    context.out.write(json.end().finish(JsonStyle::kIndented) + "\n");
    return 0;
  }
  Output& out = context.out;
  std::vector<std::string> types;
  for (const auto& [type, count] : info.tensor_types) types.push_back(fmt::format("{} {}", count, type));
  out.print("name          {}\n", info.name.empty() ? "none" : printable(info.name));
  out.print("family        {} ({})\n", info.family, info.format);
  out.print("parameters    {}\n", count_text(info.num_parameters));
  if (info.architecture != "decoder") out.print("architecture  {}\n", info.architecture);
  out.print("layers        {}{}, {} wide, feed-forward {}\n", info.num_encoder_layers > 0 ? fmt::format("{} + ", info.num_encoder_layers) : "", info.num_layers, info.hidden_size, info.ffn_size);
  out.print("attention     {} query heads, {} key heads, {} each{}\n", info.num_q_heads, info.num_kv_heads, info.head_dim,
            info.window > 0 ? fmt::format(", window {} keys", info.window) : "");
  out.print("vocabulary    {} tokens\n", info.vocab_size);
  if (info.num_classes > 0) {
    std::vector<std::string> names;
    for (const std::string& name : info.class_names) names.push_back(printable(name));
    out.print("classes       {}{}{}\n", info.num_classes, names.empty() ? "" : ": ", fmt::join(names, ", "));
  }
  out.print("context       {} tokens{}\n", info.context, info.max_context > 0 ? ", the most that its learned positions are for" : "");
  out.print("tensors       {}\n", fmt::join(types, ", "));
  out.print("tokenizer     {}\n", info.has_tokenizer ? "yes" : "no");
  out.print("chat template {}\n", info.has_chat_template ? "yes" : "no");
  out.print("file          {}\n", size_text(info.file_bytes));
  out.print("memory        {} at {} tokens: weights {}, cache {} ({} a token), workspace {}\n", size_text(total), tokens,
            size_text(info.weight_bytes), size_text(cache), size_text(info.cache_bytes_per_token), size_text(info.workspace_bytes));
  return 0;
}

}  // namespace

Command info_command() {
  const std::vector<Option> options = model_options();
  return {
      .name = "info",
      .summary = "describe a model file and the memory it will take",
      .description = "Prints what is inside a model file: family, sizes, tensor types, and the memory that running it takes. Nothing is run and no "
                     "weights are read.",
      .examples = {{"regard info -m model.gguf", "A page to read."},
                   {"regard info -m model.gguf --context 2048 --json | jq .memory.bytes", "The memory for 2048 tokens, for a script."}},
      .positionals = {},
      .options = {options[0], options[1], json_option()},
      .run = run_info,
  };
}

}  // namespace regard::cli
