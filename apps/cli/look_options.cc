#include "look_options.h"

#include <fmt/format.h>

#include "input.h"
#include "regard/model_attention.h"
#include "regard/tokenizer.h"

namespace regard::cli {

std::vector<Option> look_options(std::string_view help) {
  return {
      {.name = "look", .help = help, .section = Section::kCommon},
      {.name = "look-png", .type = Type::kOutputFile, .value = "FILE",
       .help = "The same map as a picture; what its font lacks is labelled with token numbers, and the labels are in the file as text."},
      {.name = "look-layer", .type = Type::kInteger, .value = "L", .help = "The weights of one layer, counted from 0; without it the mean over all.",
       .min = 0, .max = 65535},
      {.name = "look-head", .type = Type::kInteger, .value = "H", .help = "The weights of one head, counted from 0; without it the mean over all.",
       .min = 0, .max = 65535},
      force_option(),
  };
}

LookRequest read_look_options(const Arguments& arguments) {
  LookRequest request;
  request.in_terminal = arguments.flag("look");
  request.wanted = request.in_terminal || arguments.has("look-png");
  if (!request.wanted && (arguments.has("look-layer") || arguments.has("look-head"))) throw UsageError("--look-layer and --look-head belong to --look or --look-png");
  if (arguments.text("look-png") == "-") throw UsageError("--look-png needs a file name; standard output has the text");
  if (arguments.has("look-png")) request.picture = output_path(arguments, "look-png", kPngMagic);
  if (arguments.has("look-layer")) request.layer = arguments.integer("look-layer");
  if (arguments.has("look-head")) request.head = arguments.integer("look-head");
  return request;
}

void check_look(const Model& model, const LookRequest& request) {
  const auto check = [](std::string_view what, int64_t given, int64_t count) {
    if (given >= count) throw UsageError(fmt::format("--look-{} {}: this model has {} {}{}, counted from 0", what, given, count, what, count == 1 ? "" : "s"));
  };
  check("layer", request.layer, model.info().num_layers);
  check("head", request.head, model.info().num_q_heads);
}

HeatMap look_at(const Model& model, std::span<const int32_t> text, const LookRequest& request) {
  HeatMap map;
  if (text.size() < 2) return map;
  LookOptions options;
  options.layer = request.layer;
  options.head = request.head;
  options.stop = &stop_token();
  map.values = look(model, text.first(text.size() - 1), options);
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    map.columns.push_back({model.tokenizer().token_bytes(text[i]), text[i]});
    map.rows.push_back({model.tokenizer().token_bytes(text[i + 1]), text[i + 1]});
  }
  return map;
}

void write_look(JsonWriter& json, const HeatMap& map) {
  const auto labels = [&](std::string_view name, const std::vector<HeatMapLabel>& list) {
    json.key(name).begin_array();
    for (const HeatMapLabel& label : list) json.value(label.text);
    json.end();
  };
  json.key("look").begin_object();
  labels("written", map.rows);
  labels("read", map.columns);
  json.key("weights").begin_array();
  for (size_t i = 0; i < map.rows.size(); ++i) {
    json.begin_array();
    for (size_t j = 0; j < map.columns.size(); ++j) json.value(static_cast<double>(map.values[i * map.columns.size() + j]));
    json.end();
  }
  json.end().end();
}

}  // namespace regard::cli
