// What the operators of an expression do to values, as Python does it.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace regard::jinja {

Value arithmetic(Runtime& runtime, Op op, const Value& left, const Value& right);
Value negate(Runtime& runtime, const Value& value);
bool compare(Runtime& runtime, Op op, const Value& left, const Value& right);

/// `object.name`: the method or attribute first, then the item of a dict. A method comes back as a Function.
Value attribute_of(Runtime& runtime, const Value& object, std::string_view name);
/// `object[key]`: the item first; undefined when there is none.
Value item_of(Runtime& runtime, const Value& object, const Value& key);
/// `object[start:stop:step]`; an undefined bound is an absent one.
Value slice_of(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step);

/// Refuses text marked `safe`: whatever Python joins to it gets escaped, which is not done here.
void refuse_safe(Runtime& runtime, const Value& value);

/// text % values.
MarkedText format_percent(Runtime& runtime, const MarkedText& format, const Value& values);

}  // namespace regard::jinja
