#include "text/jinja/runtime.h"

#include "text/jinja/position.h"
#include "text/jinja/unicode.h"

namespace regard::jinja {

Runtime::~Runtime() {
  // First all attributes come out of all namespaces, while every namespace is still held here: so nothing is freed
  // through more levels than one value has.
  std::vector<Value> released;
  for (const auto& ns : namespaces_) {
    for (auto& attribute : ns->attributes) released.push_back(std::move(attribute.second));
    ns->attributes.clear();
  }
}

void Runtime::fail_with(Code code, std::string_view what) const {
  throw_error(code, message_at(source_, offset_, what));
}

void Runtime::out_of(std::string_view what, uint64_t limit) const {
  fail(Code::kResourceExhausted, "the template uses more than {} {}", limit, what);
}

void Runtime::allocate(size_t bytes) {
  allocated_ += bytes;
  if (allocated_ > limits_.max_memory_bytes) out_of("bytes of memory", limits_.max_memory_bytes);
  step(bytes / 16);
}

void Runtime::grow(const MarkedText& out, size_t bytes) {
  if (bytes > limits_.max_output_bytes || out.size() > limits_.max_output_bytes - bytes) {
    out_of("bytes of text", limits_.max_output_bytes);
  }
  constexpr size_t kPerAppend = 16;  // an entry in the list of cuts
  allocate(bytes + kPerAppend);
}

void Runtime::admit(const Extent& extent) const {
  if (extent.depth > limits_.max_value_depth)
    out_of("levels in a value", static_cast<uint64_t>(limits_.max_value_depth));
  if (extent.weight > limits_.max_value_weight) out_of("values in one value", limits_.max_value_weight);
}

Value Runtime::list(std::vector<Value> items, List::Kind kind) {
  if (items.size() > limits_.max_items) out_of("items in a list", limits_.max_items);
  allocate(items.size() * sizeof(Value) + sizeof(List));
  auto list = std::make_shared<List>();
  for (const Value& item : items) {
    extend(list->extent, extent_of(item));
    admit(list->extent);
  }
  list->items = std::move(items);
  list->kind = kind;
  return Value(ListRef(std::move(list)));
}

void Runtime::set(Dict& dict, Value key, Value value) {
  if (!is_hashable(key)) wrong("a {} cannot be the key of a dict", type_name(key));
  const size_t key_bytes = key.text() != nullptr ? key.text()->size() : 0;
  if (dict.size() >= limits_.max_items) out_of("items in a dict", limits_.max_items);
  allocate(key_bytes + 4 * sizeof(Value));  // the entry and its place in the index
  dict.set(std::move(key), std::move(value));
  admit(dict.extent);
}

Value Runtime::dict(Dict dict) { return Value(DictRef(std::make_shared<const Dict>(std::move(dict)))); }

std::shared_ptr<Namespace> Runtime::make_namespace() {
  allocate(sizeof(Namespace) * 2);
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

ListRef Runtime::items(const Value& value) {
  static const ListRef kNothing = std::make_shared<const List>();
  if (const auto* list = value.as<ListRef>()) {
    if ((*list)->kind == List::Kind::kGenerator && std::exchange((*list)->exhausted, true)) return kNothing;
    return *list;
  }
  if (value.is_undefined()) return kNothing;
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    items.reserve(dict->size());
    for (const auto& entry : dict->entries()) items.push_back(entry.first);
  } else if (const MarkedText* text = value.text()) {
    const std::string_view bytes = text->bytes();
    read(bytes.size());
    for (size_t at = 0; at < bytes.size();) {
      if (items.size() >= limits_.max_items) out_of("items in a list", limits_.max_items);
      const size_t end = at + code_point_at(bytes, at).bytes;
      allocate(sizeof(MarkedText));
      items.emplace_back(slice(*text, at, end));
      at = end;
    }
  } else {
    wrong("a value of type {} cannot be iterated", type_name(value));
  }
  return *list(std::move(items)).as<ListRef>();
}

const Value* Arguments::next(std::string_view parameter) {
  const Value* found = taken_ < positional_.size() ? &positional_[taken_++] : nullptr;
  named_taken_.resize(named_.size());
  for (size_t i = 0; i < named_.size(); ++i) {
    if (named_[i].first != parameter) continue;
    if (found != nullptr) runtime_.wrong("{} got its argument `{}` twice", callee_, parameter);
    named_taken_[i] = true;
    found = &named_[i].second;
  }
  return found;
}

const Value& Arguments::require(std::string_view parameter) {
  const Value* value = next(parameter);
  if (value == nullptr) runtime_.wrong("{} needs its argument `{}`", callee_, parameter);
  return *value;
}

bool Arguments::flag(std::string_view parameter, bool fallback) {
  const Value* value = next(parameter);
  return value == nullptr ? fallback : truth(*value);
}

int64_t Arguments::integer(std::string_view parameter, int64_t fallback) {
  const Value* value = next(parameter);
  if (value == nullptr) return fallback;
  int64_t integer = 0;
  if (!to_integer(*value, integer))
    runtime_.wrong("{} needs an int as `{}`, not a {}", callee_, parameter, type_name(*value));
  return integer;
}

void Arguments::done() const {
  if (taken_ < positional_.size()) {
    runtime_.wrong("{} takes {} arguments, {} were given", callee_, taken_, positional_.size());
  }
  for (size_t i = 0; i < named_.size(); ++i) {
    if (i >= named_taken_.size() || !named_taken_[i]) {
      runtime_.wrong("{} does not take an argument `{}` here", callee_, named_[i].first);
    }
  }
}

std::vector<Value> Arguments::rest() {
  std::vector<Value> rest(positional_.begin() + static_cast<std::ptrdiff_t>(taken_), positional_.end());
  taken_ = positional_.size();
  return rest;
}

Arguments::Named Arguments::rest_named() {
  Named rest;
  named_taken_.resize(named_.size());
  for (size_t i = 0; i < named_.size(); ++i) {
    if (!named_taken_[i]) rest.push_back(named_[i]);
    named_taken_[i] = true;
  }
  return rest;
}

}  // namespace regard::jinja
