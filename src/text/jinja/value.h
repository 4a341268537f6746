// The values a template computes with. They are plain data: no value leads to a file, the network or an object of the
// program around it. Everything but a namespace is immutable once made. Start with Value, then List and Dict.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/marked_text.h"

namespace regard::jinja {

struct Stmt;
struct Scope;
struct List;
class Dict;
struct Namespace;
struct Loop;
struct Macro;

struct Undefined {};
struct None {};

/// How far a value reaches: nesting, and the work of walking it whole (values, plus text in units of 64 bytes; what is held
/// twice counts twice). Both are limited when a container is made, so that walking, comparing and freeing are bounded.
struct Extent {
  int depth = 0;
  uint64_t weight = 1;
};

/// A function of the interpreter, by name. Methods have `is_method` set: they can be tested, and called only where named.
struct Function {
  std::string_view name;
  bool is_method = false;
};

using ListRef = std::shared_ptr<const List>;
using DictRef = std::shared_ptr<const Dict>;

/// Text with one more mark: the `safe` filter was applied, after which Python escapes whatever is joined to it.
struct String {
  std::shared_ptr<const MarkedText> text;
  bool safe = false;
};

class Value {
 public:
  using Storage = std::variant<Undefined, None, bool, int64_t, double, String, ListRef, DictRef,
                               std::shared_ptr<Namespace>, std::shared_ptr<Loop>, std::shared_ptr<const Macro>, Function>;
  Value() = default;
  Value(None) : storage_(None{}) {}
  Value(bool value) : storage_(value) {}
  Value(int64_t value) : storage_(value) {}
  Value(double value) : storage_(value) {}
  Value(MarkedText text) : storage_(String{std::make_shared<const MarkedText>(std::move(text)), false}) {}
  Value(String text) : storage_(std::move(text)) {}
  Value(ListRef list) : storage_(std::move(list)) {}
  Value(DictRef dict) : storage_(std::move(dict)) {}
  Value(std::shared_ptr<Namespace> ns) : storage_(std::move(ns)) {}
  Value(std::shared_ptr<Loop> loop) : storage_(std::move(loop)) {}
  Value(std::shared_ptr<const Macro> macro) : storage_(std::move(macro)) {}
  Value(Function function) : storage_(function) {}
  Value(const char*) = delete;  // would convert to bool

  /// The alternative T, or nullptr when the value is another kind.
  template <class T>
  const T* as() const noexcept {
    return std::get_if<T>(&storage_);
  }
  template <class T>
  bool is() const noexcept {
    return std::holds_alternative<T>(storage_);
  }
  bool is_undefined() const noexcept { return is<Undefined>(); }
  const MarkedText* text() const noexcept {
    const auto* string = as<String>();
    return string != nullptr ? string->text.get() : nullptr;
  }
  const List* list() const noexcept {
    const auto* list = as<ListRef>();
    return list != nullptr ? list->get() : nullptr;
  }
  const Dict* dict() const noexcept {
    const auto* dict = as<DictRef>();
    return dict != nullptr ? dict->get() : nullptr;
  }

 private:
  Storage storage_;
};

/// A list and its relatives, which differ in what may be done with them, as in Python.
struct List {
  enum class Kind {
    kList,
    kTuple,
    kRange,      // of range(); cannot be printed here
    kView,       // of dict.items(), keys(), values(): no indexing, cannot be printed here
    kGenerator,  // of map, select, reject ...: can be walked once, has no length, is always true
  };
  std::vector<Value> items;
  Kind kind = Kind::kList;
  Extent extent{1, 1};             // set by Runtime::list()
  mutable bool exhausted = false;  // a generator that has been walked
};

/// Key and value pairs in the order of insertion.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  size_t size() const noexcept { return entries_.size(); }
  /// The value at a key, or nullptr. Keys are equal as in Python: 1, 1.0 and true are one key.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Sets a key that is_hashable(); an old value is replaced where it stands.
  void set(Value key, Value value);

  Extent extent{1, 1};  // kept by set()

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;  // from the key's canonical spelling
};

/// namespace(...): the one thing that can be changed. All live in the registry of the run, which breaks their cycles.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

/// What `loop` stands for inside a for.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index = 0;
  std::vector<Value> last_changed;  // arguments of the previous loop.changed(...)
  bool changed_called = false;
};

/// A macro with the scope it was defined in. The scope is not kept alive: a macro that outlives it cannot be called.
struct Macro {
  const Stmt* definition = nullptr;
  std::weak_ptr<Scope> scope;
};

/// Text written by the template (or by the interpreter for it).
inline Value template_text(std::string bytes) { return Value(MarkedText(std::move(bytes), Origin::kTemplate)); }

/// The kind in the words of Python: "str", "int", "list" ...
std::string_view type_name(const Value& value) noexcept;

/// What `if` makes of it.
bool truth(const Value& value) noexcept;

/// The extent of a value; a namespace counts as a scalar, since what it holds can change.
Extent extent_of(const Value& value) noexcept;
/// Makes `whole` reach as far as a container that also holds `part`.
void extend(Extent& whole, const Extent& part) noexcept;

/// The integer a bool or int stands for; false when it is neither.
bool to_integer(const Value& value, int64_t& out) noexcept;
/// The number a bool, int or float stands for; false when it is none.
bool to_number(const Value& value, double& out) noexcept;

/// Whether it can be a key of a dict: scalars and text.
bool is_hashable(const Value& value) noexcept;

/// Equality of Python: numbers by value, text by bytes, lists of one kind item by item, the rest by identity.
bool equal(const Value& left, const Value& right);

/// Order of Python: -1, 0 or 1, or 2 when the two have no order (then Python raises TypeError), 3 when one is NaN.
int order(const Value& left, const Value& right);
inline constexpr int kNoOrder = 2;
inline constexpr int kUnordered = 3;

}  // namespace regard::jinja
