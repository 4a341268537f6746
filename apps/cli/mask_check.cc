// `regard mask check`: what a mask in a .npy file says, and which of the classic mistakes it makes.
#include <fmt/format.h>

#include "command.h"
#include "mask_options.h"
#include "regard/error.h"
#include "regard/json.h"
#include "regard/mask_check.h"
#include "regard/npy.h"

namespace regard::cli {
namespace {

constexpr double kMostTokens = 1e9;
constexpr size_t kShownText = 200;

MaskCheck read_check(const Arguments& arguments, const Bindings& bindings) {
  const auto number = [&](std::string_view option) {
    return arguments.has(option) ? std::optional<int64_t>(arguments.integer(option)) : std::nullopt;
  };
  MaskCheck check;
  if (arguments.flag("keep") && arguments.flag("drop")) throw UsageError("--keep and --drop exclude each other; give what true means in the file");
  if (arguments.flag("keep")) check.polarity = Polarity::kKeep;
  if (arguments.flag("drop")) check.polarity = Polarity::kDrop;
  if (arguments.has("expect")) check.expected = Mask::parse(arguments.text("expect"), bindings);
  check.batch = number("batch");
  check.num_q_heads = number("heads");
  check.q_len = number("q-len");
  check.kv_len = number("kv-len");
  check.q_begin = number("q-begin");
  check.stop = &stop_token();
  return check;
}

std::string place(const MaskFault& fault) {
  std::string text;
  const auto add = [&](std::string_view word, const std::optional<int64_t>& at) {
    if (at) text += fmt::format("{}{} {}", text.empty() ? " at " : ", ", word, *at);
  };
  add("batch row", fault.batch);
  add("head", fault.head);
  add("row", fault.q);
  add("column", fault.k);
  return text;
}

void write_report(JsonWriter& json, const MaskReport& report) {
  json.begin_object().member("schema", 1).member("reading", report.reading).key("shape").begin_array();
  for (int64_t extent : report.shape) json.value(extent);
  json.end().key("mask");
  if (report.recognised) json.value(report.recognised->mask.text()).member("q_begin", report.recognised->q_begin);
  else json.null();
  json.key("faults").begin_array();
  for (const MaskFault& fault : report.faults) {
    json.begin_object().member("name", fault.name).member("says", fault.says);
    if (fault.batch) json.member("batch", *fault.batch);
    if (fault.head) json.member("head", *fault.head);
    if (fault.q) json.member("row", *fault.q);
    if (fault.k) json.member("column", *fault.k);
    json.end();
  }
  json.end().end();
}

int run_check(Context& context) {
  const Arguments& arguments = context.arguments;
  const Bindings bindings = read_bindings(arguments);
  const MaskCheck check = read_check(arguments, bindings);
  const std::string& path = arguments.positional("FILE");
  const NpyArray array = load_npy(path);
  if (array.shape.size() < 2 || array.shape.size() > 4) {
    throw UsageError(fmt::format("{} has the shape [{}]; a mask has 2 to 4 axes: [q, k], [heads, q, k] or [batch, heads, q, k]", path,
                                 fmt::join(array.shape, ", ")));
  }
  if (check.expected && check.expected->compares_positions() && !check.q_begin) {
    const size_t axes = array.shape.size();
    const int64_t q = array.shape[axes - 2] == 1 && check.q_len ? *check.q_len : array.shape[axes - 2];
    const int64_t k = array.shape[axes - 1] == 1 && check.kv_len ? *check.kv_len : array.shape[axes - 1];
    if (q != k) throw UsageError(where_queries_stand(q, k));
  }
  const MaskReport report = check_mask_array({array.type, array.shape, array.bytes.data()}, check);
  if (arguments.flag("json")) {
    JsonWriter json;
    write_report(json, report);
    context.out.write(json.finish() + "\n");
  } else {
    context.out.print("{}: {}, [batch, heads, q, k] = [{}]\n", path, report.reading, fmt::join(report.shape, ", "));
    if (report.recognised) {
      std::string text = report.recognised->mask.text();
      if (text.size() > kShownText) text = text.substr(0, kShownText - 3) + "...";
      const bool placed = report.recognised->q_begin != 0 && report.recognised->mask.compares_positions();
      context.out.print("mask: {}{}\n", text, placed ? fmt::format(", queries from position {} on", report.recognised->q_begin) : "");
    } else {
      context.out.write("mask: no short expression\n");
    }
    for (const MaskFault& fault : report.faults) context.out.print("fault: {}{}: {}\n", fault.name, place(fault), fault.says);
    if (report.faults.empty()) context.out.write("no faults\n");
  }
  return report.faults.empty() ? 0 : exit_status(Code::kFailedCheck);
}

}  // namespace

Command mask_check_command() {
  return {
      .name = "mask check",
      .summary = "look for mistakes in a mask from elsewhere",
      .description = "Reads a boolean mask, or one of numbers that are added to scores, names the expression that it equals, and reports the "
                     "classic mistakes with the first place of each. The status is 1 when there are any. docs/masks.md lists them.",
      .examples = {{"regard mask check mask.npy --drop", "A mask in which true hides."},
                   {"regard mask check mask.npy --expect \"causal & lengths(n)\" --bind n=lengths.npy --json", "Is it what it should be?"}},
      .positionals = {{"FILE", "a .npy array [q, k], [heads, q, k] or [batch, heads, q, k]"}},
      .options = join({{
                           {.name = "expect", .type = Type::kText, .value = "MASK", .help = "What the file should say; docs/masks.md lists the terms.",
                            .section = Section::kCommon},
                           {.name = "keep", .help = "true means may look; this is what is taken without both.", .section = Section::kCommon},
                           {.name = "drop", .help = "true means may not look.", .section = Section::kCommon},
                           {.name = "q-len", .type = Type::kInteger, .value = "N", .help = "Number of queries the mask is for.", .min = 0,
                            .max = kMostTokens, .section = Section::kCommon},
                           {.name = "kv-len", .type = Type::kInteger, .value = "N", .help = "Number of keys the mask is for.", .min = 0,
                            .max = kMostTokens, .section = Section::kCommon},
                           {.name = "q-begin", .type = Type::kInteger, .value = "P",
                            .help = "Position of the first query. Needed when queries and keys differ in number and what is expected compares "
                                    "positions.",
                            .min = 0, .max = kMostTokens, .section = Section::kCommon},
                           {.name = "batch", .type = Type::kInteger, .value = "N", .help = "Number of batch rows the mask is for.", .min = 1, .max = 1e6},
                           {.name = "heads", .type = Type::kInteger, .value = "N", .help = "Number of query heads the mask is for.", .min = 1,
                            .max = 65536},
                       },
                       {mask_limit_options().front()},
                       {json_option()}}),
      .run = run_check,
  };
}

}  // namespace regard::cli
