// Options that `mask` and `attend` share: the arrays that names stand for, lengths and documents, and where queries stand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "command.h"
#include "regard/mask.h"

namespace regard::cli {

/// --bind, --lengths, --documents.
std::vector<Option> mask_limit_options();

/// --batch-row, --head.
Option batch_row_option();
Option head_option();

/// What is said when lengths differ, the mask compares positions and nobody gave --q-begin.
std::string where_queries_stand(int64_t q_len, int64_t kv_len);

/// The arrays of all --bind NAME=FILE: whole numbers become a list (two axes: one list per batch row), bool arrays and bytes
/// with two to four axes become a table in which true means "may look".
Bindings read_bindings(const Arguments& arguments);
/// --lengths and --documents; names in them are those of `bindings`.
MaskLimits read_limits(const Arguments& arguments, const Bindings& bindings);
/// A .npy file as the bits of a table.
BitTable load_table(const std::string& path);

/// The value `name` of a command, a position. Errors: UsageError for what is no whole number of 0 or more.
int64_t read_position(const Arguments& arguments, std::string_view name);

/// "3, 5 7" as numbers. Errors: UsageError that begins with `what`.
std::vector<int64_t> parse_integers(std::string_view text, std::string_view what);

}  // namespace regard::cli
