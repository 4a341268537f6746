// The filters, tests, methods and global functions that templates may use, by name. Filters are in filters.cc and
// filters_lists.cc, the rest in tests.cc, methods.cc and functions.cc.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/runtime.h"

namespace regard::jinja {

using Filter = Value (*)(Runtime& runtime, const Value& input, Arguments& arguments);
using Test = bool (*)(Runtime& runtime, const Value& input, Arguments& arguments);
struct NamedFilter {
  std::string_view name;
  Filter filter;
};

/// The filter or test of a name, or nullptr.
Filter find_filter(std::string_view name) noexcept;
Test find_test(std::string_view name) noexcept;
std::span<const NamedFilter> text_filters() noexcept;
std::span<const NamedFilter> list_filters() noexcept;

/// The name as it lives in the table of methods of the object's kind; empty when there is no such method.
std::string_view find_method(const Value& object, std::string_view name) noexcept;
Value call_method(Runtime& runtime, const Value& object, std::string_view method, Arguments& arguments);

/// `loop.name`: false when the loop has no such attribute.
bool loop_attribute(Runtime& runtime, const Loop& loop, std::string_view name, Value& value);

/// The name as it lives in the table of global functions; empty when there is none.
std::string_view find_function(std::string_view name) noexcept;
/// Whether Jinja has this global function but it is not supported here.
bool is_unsupported_function(std::string_view name) noexcept;
Value call_function(Runtime& runtime, std::string_view function, Arguments& arguments);

// Shared by filters and methods of text.
enum class Side { kLeft, kRight, kBoth };
MarkedText strip(Runtime& runtime, const MarkedText& text, Side side, const Value* characters);
MarkedText upper(Runtime& runtime, const MarkedText& text);
MarkedText lower(Runtime& runtime, const MarkedText& text);
MarkedText capitalize(Runtime& runtime, const MarkedText& text);
/// `count` below 0 replaces all. What replaces contents counts as contents.
MarkedText replace(Runtime& runtime, const MarkedText& text, const MarkedText& from, const MarkedText& to,
                   int64_t count);
std::vector<Value> split_lines(Runtime& runtime, const MarkedText& text);
MarkedText join(Runtime& runtime, const MarkedText& separator, const std::vector<Value>& parts);

}  // namespace regard::jinja
