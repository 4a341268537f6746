// The JSON writer: nlohmann's ordered value behind a stack of the containers that are still open.
#include "regard/json.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"

namespace regard {

using Node = nlohmann::ordered_json;

struct JsonWriter::State {
  struct Open {
    Node* node = nullptr;
    std::unordered_set<std::string> keys = {};  // of an object: nlohmann would look for a key among all, and a vocabulary has many
  };
  std::optional<Node> root;
  // Innermost last. A container grows only while it is the innermost one, so the pointers below it stay good.
  std::vector<Open> open;
  std::optional<std::string> key;

  Node& add(Node node) {
    if (open.empty()) {
      if (root) fail(Code::kInvalidArgument, "[JsonWriter] a second value after the text was complete; call finish() first");
      root = std::move(node);
      return *root;
    }
    Node& parent = *open.back().node;
    if (parent.is_array()) {
      parent.push_back(std::move(node));
      return parent.back();
    }
    if (!key) fail(Code::kInvalidArgument, "[JsonWriter] a value in an object without its key; call key() first");
    if (!open.back().keys.insert(*key).second)
      fail(Code::kInvalidArgument, "[JsonWriter] the key \"{}\" was written before in this object", *key);
    Node::object_t::Container& members = parent.get_ref<Node::object_t&>();  // the list that an ordered object is
    members.emplace_back(*std::exchange(key, std::nullopt), std::move(node));
    return members.back().second;
  }
};

JsonWriter::JsonWriter() : state_(std::make_unique<State>()) {}
JsonWriter::JsonWriter(JsonWriter&&) noexcept = default;
JsonWriter& JsonWriter::operator=(JsonWriter&&) noexcept = default;
JsonWriter::~JsonWriter() = default;

JsonWriter& JsonWriter::begin_object() {
  state_->open.push_back({&state_->add(Node::object())});
  return *this;
}

JsonWriter& JsonWriter::begin_array() {
  state_->open.push_back({&state_->add(Node::array())});
  return *this;
}

JsonWriter& JsonWriter::end() {
  if (state_->open.empty() || state_->key)
    fail(Code::kInvalidArgument, "[JsonWriter] end() with {}", state_->key ? "a key that has no value" : "nothing to end");
  state_->open.pop_back();
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  if (state_->open.empty() || !state_->open.back().node->is_object() || state_->key)
    fail(Code::kInvalidArgument, "[JsonWriter] key \"{}\" outside an object, or after another key", name);
  state_->key = std::string(name);
  return *this;
}

JsonWriter& JsonWriter::null() { return state_->add(nullptr), *this; }
JsonWriter& JsonWriter::value(bool v) { return state_->add(v), *this; }
JsonWriter& JsonWriter::value(int v) { return state_->add(v), *this; }
JsonWriter& JsonWriter::value(int64_t v) { return state_->add(v), *this; }
JsonWriter& JsonWriter::value(uint64_t v) { return state_->add(v), *this; }
JsonWriter& JsonWriter::value(long long v) { return state_->add(v), *this; }
JsonWriter& JsonWriter::value(unsigned long long v) { return state_->add(v), *this; }
JsonWriter& JsonWriter::value(unsigned v) { return state_->add(v), *this; }
JsonWriter& JsonWriter::value(std::string_view v) { return state_->add(std::string(v)), *this; }

JsonWriter& JsonWriter::value(double v) {
  if (!std::isfinite(v)) fail(Code::kNumeric, "[JsonWriter] {} is no JSON number; write null where that is meant", v);
  return state_->add(v), *this;
}

JsonWriter& JsonWriter::value(float v) {
  // nlohmann writes doubles: give it the double that prints as the float's own shortest decimal (0.1, not 0.10000000149).
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, v);
  double wide = v;
  if (std::isfinite(v)) std::from_chars(text, written.ptr, wide);
  return value(static_cast<float>(wide) == v ? wide : static_cast<double>(v));
}

std::string JsonWriter::finish(JsonStyle style) {
  if (!state_->root || !state_->open.empty())
    fail(Code::kInvalidArgument, "[JsonWriter] finish() with {}", state_->root ? "an object or array still open" : "nothing written");
  const Node root = *std::exchange(state_->root, std::nullopt);
  return root.dump(style == JsonStyle::kIndented ? 2 : -1, ' ', false, Node::error_handler_t::replace);
}

}  // namespace regard
