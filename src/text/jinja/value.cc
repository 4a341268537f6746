#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace regard::jinja {
namespace {

// One spelling per class of equal keys.
std::string canonical_key(const Value& key) {
  if (const MarkedText* text = key.text()) return fmt::format("s{}", text->bytes());
  int64_t integer = 0;
  if (to_integer(key, integer)) return fmt::format("n{}", integer);
  if (const double* number = key.as<double>()) {
    constexpr double kTwo63 = 0x1p63;
    if (std::floor(*number) == *number && *number >= -kTwo63 && *number < kTwo63) {
      return fmt::format("n{}", static_cast<int64_t>(*number));
    }
    return fmt::format("f{}", *number);
  }
  return "o";  // none
}

template <class T>
int three_way(const T& left, const T& right) {
  return left < right ? -1 : (right < left ? 1 : 0);
}

}  // namespace

const Value* Dict::find(const Value& key) const {
  if (!is_hashable(key)) return nullptr;
  const auto it = index_.find(canonical_key(key));
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto it = index_.find(fmt::format("s{}", key));
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

void Dict::set(Value key, Value value) {
  extend(extent, extent_of(key));
  extend(extent, extent_of(value));
  const auto [it, is_new] = index_.emplace(canonical_key(key), entries_.size());
  if (is_new) {
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[it->second].second = std::move(value);
  }
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(name, std::move(value));
}

std::string_view type_name(const Value& value) noexcept {
  if (value.is<Undefined>()) return "undefined";
  if (value.is<None>()) return "none";
  if (value.is<bool>()) return "bool";
  if (value.is<int64_t>()) return "int";
  if (value.is<double>()) return "float";
  if (value.is<String>()) return "str";
  if (value.is<DictRef>()) return "dict";
  if (const List* list = value.list()) {
    switch (list->kind) {
      case List::Kind::kList:
        return "list";
      case List::Kind::kTuple:
        return "tuple";
      case List::Kind::kRange:
        return "range";
      case List::Kind::kView:
        return "dict view";
      case List::Kind::kGenerator:
        return "generator";
    }
  }
  if (value.is<std::shared_ptr<Namespace>>()) return "namespace";
  if (value.is<std::shared_ptr<Loop>>()) return "loop";
  return "function";
}

bool truth(const Value& value) noexcept {
  if (value.is<Undefined>() || value.is<None>()) return false;
  if (const bool* flag = value.as<bool>()) return *flag;
  if (const int64_t* integer = value.as<int64_t>()) return *integer != 0;
  if (const double* number = value.as<double>()) return *number != 0;
  if (const MarkedText* text = value.text()) return !text->empty();
  if (const List* list = value.list()) return list->kind == List::Kind::kGenerator || !list->items.empty();
  if (const Dict* dict = value.dict()) return dict->size() != 0;
  return true;
}

Extent extent_of(const Value& value) noexcept {
  if (const MarkedText* text = value.text()) return {0, 1 + text->size() / 64};
  if (const List* list = value.list()) return list->extent;
  if (const Dict* dict = value.dict()) return dict->extent;
  return {};
}

void extend(Extent& whole, const Extent& part) noexcept {
  whole.depth = std::max(whole.depth, 1 + part.depth);
  whole.weight += part.weight;  // parts are limited (Runtime::admit), so this cannot wrap
}

bool to_integer(const Value& value, int64_t& out) noexcept {
  if (const bool* flag = value.as<bool>()) {
    out = *flag ? 1 : 0;
    return true;
  }
  if (const int64_t* integer = value.as<int64_t>()) {
    out = *integer;
    return true;
  }
  return false;
}

bool to_number(const Value& value, double& out) noexcept {
  int64_t integer = 0;
  if (to_integer(value, integer)) {
    out = static_cast<double>(integer);
    return true;
  }
  if (const double* number = value.as<double>()) {
    out = *number;
    return true;
  }
  return false;
}

bool is_hashable(const Value& value) noexcept {
  return value.is<None>() || value.is<bool>() || value.is<int64_t>() || value.is<double>() || value.is<String>();
}

bool equal(const Value& left, const Value& right) {
  int64_t a = 0;
  int64_t b = 0;
  if (to_integer(left, a) && to_integer(right, b)) return a == b;
  double x = 0;
  double y = 0;
  if (to_number(left, x) && to_number(right, y)) return x == y;
  if (left.text() != nullptr && right.text() != nullptr) return left.text()->bytes() == right.text()->bytes();
  if (left.is<Undefined>() || left.is<None>()) {
    return left.is<Undefined>() ? right.is<Undefined>() : right.is<None>();
  }
  if (left.list() != nullptr && right.list() != nullptr) {
    const List& l = *left.list();
    const List& r = *right.list();
    if (&l == &r) return true;
    if (l.kind != r.kind || l.kind == List::Kind::kView || l.kind == List::Kind::kGenerator) return false;
    return std::equal(l.items.begin(), l.items.end(), r.items.begin(), r.items.end(), equal);
  }
  if (left.dict() != nullptr && right.dict() != nullptr) {
    const Dict& l = *left.dict();
    const Dict& r = *right.dict();
    if (l.size() != r.size()) return false;
    return std::all_of(l.entries().begin(), l.entries().end(), [&](const Dict::Entry& entry) {
      const Value* other = r.find(entry.first);
      return other != nullptr && equal(entry.second, *other);
    });
  }
  if (const auto* ns = left.as<std::shared_ptr<Namespace>>()) {
    const auto* other = right.as<std::shared_ptr<Namespace>>();
    return other != nullptr && *ns == *other;
  }
  if (const auto* macro = left.as<std::shared_ptr<const Macro>>()) {
    const auto* other = right.as<std::shared_ptr<const Macro>>();
    return other != nullptr && *macro == *other;
  }
  if (const auto* function = left.as<Function>()) {
    const auto* other = right.as<Function>();
    return other != nullptr && !function->is_method && !other->is_method && function->name == other->name;
  }
  return false;
}

int order(const Value& left, const Value& right) {
  int64_t a = 0;
  int64_t b = 0;
  if (to_integer(left, a) && to_integer(right, b)) return three_way(a, b);
  double x = 0;
  double y = 0;
  if (to_number(left, x) && to_number(right, y)) return std::isnan(x) || std::isnan(y) ? kUnordered : three_way(x, y);
  if (left.text() != nullptr && right.text() != nullptr) return three_way(left.text()->bytes(), right.text()->bytes());
  const List* l = left.list();
  const List* r = right.list();
  if (l == nullptr || r == nullptr || l->kind != r->kind) return kNoOrder;
  if (l->kind != List::Kind::kList && l->kind != List::Kind::kTuple) return kNoOrder;
  for (size_t i = 0; i < l->items.size() && i < r->items.size(); ++i) {
    if (!equal(l->items[i], r->items[i])) return order(l->items[i], r->items[i]);
  }
  return three_way(l->items.size(), r->items.size());
}

}  // namespace regard::jinja
