// --look and its relatives, shared by the commands that write text: how much each token read of the tokens before it, as a map
// in the terminal, as a picture, or as numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "regard/heat_map.h"
#include "regard/json.h"
#include "regard/model.h"

namespace regard::cli {

/// --look, --look-png, --look-layer, --look-head; `help` is that of --look.
std::vector<Option> look_options(std::string_view help);

/// What was asked for. Read it before the work begins: a wrong option or an output that must not be replaced is said first.
struct LookRequest {
  bool wanted = false;
  bool in_terminal = false;
  std::string picture;  ///< file of the picture; empty: none
  int64_t layer = -1, head = -1;
};
/// Errors: UsageError for a layer or head without --look, a picture on standard output, a file of another kind in its place.
LookRequest read_look_options(const Arguments& arguments);

/// Before anything is written. Errors: UsageError for a layer or head that the model has not.
void check_look(const Model& model, const LookRequest& request);

/// The map of a text that begins with what the model read first. A row for each token but the first, with the weights of the
/// place before it: that is where the model looked when this token was its choice. Empty when the text has fewer than two tokens.
HeatMap look_at(const Model& model, std::span<const int32_t> text, const LookRequest& request);

/// The member "look" with the rows' tokens ("written"), the columns' ("read") and the weights.
void write_look(JsonWriter& json, const HeatMap& map);

}  // namespace regard::cli
