// `regard mask draw|count|row|column`: what a mask means, without any tensors.
#include <fmt/format.h>

#include <algorithm>

#include "command.h"
#include "input.h"
#include "mask_options.h"
#include "regard/json.h"
#include "regard/mask.h"
#include "regard/mask_view.h"
#include "regard/png.h"

namespace regard::cli {
namespace {

constexpr int64_t kDefaultLength = 8;
constexpr double kMostTokens = 1e9;

std::vector<Option> extent_options() {
  return join({{
                   {.name = "q-len", .type = Type::kInteger, .value = "N",
                    .help = "Number of queries; without it, as many as keys, and 8 when neither is given.", .min = 0, .max = kMostTokens,
                    .section = Section::kCommon},
                   {.name = "kv-len", .type = Type::kInteger, .value = "N", .help = "Number of keys; without it, as many as queries.",
                    .min = 0, .max = kMostTokens, .section = Section::kCommon},
                   {.name = "q-begin", .type = Type::kInteger, .value = "P",
                    .help = "Position of the first query. Needed when queries and keys differ in number and the mask compares positions.",
                    .min = 0, .max = kMostTokens, .section = Section::kCommon},
                   {.name = "k-begin", .type = Type::kInteger, .value = "P", .help = "Position of the first key.", .min = 0,
                    .max = kMostTokens},
                   {.name = "batch", .type = Type::kInteger, .value = "N", .help = "Number of batch rows.", .fallback = "1", .min = 1,
                    .max = 1e6},
                   {.name = "heads", .type = Type::kInteger, .value = "N", .help = "Number of query heads.", .fallback = "1", .min = 1,
                    .max = 65536},
               },
               mask_limit_options(),
               {json_option()}});
}

MaskView read_view(const Arguments& arguments) {
  const Bindings bindings = read_bindings(arguments);
  MaskExtent extent;
  extent.batch = arguments.integer("batch");
  extent.num_q_heads = arguments.integer("heads");
  const bool q = arguments.has("q-len"), k = arguments.has("kv-len");
  extent.q_len = q ? arguments.integer("q-len") : k ? arguments.integer("kv-len") : kDefaultLength;
  extent.kv_len = k ? arguments.integer("kv-len") : extent.q_len;
  if (arguments.has("q-begin") || arguments.has("k-begin")) {
    extent.placement = Placement{arguments.has("q-begin") ? arguments.integer("q-begin") : 0,
                                 arguments.has("k-begin") ? arguments.integer("k-begin") : 0};
  }
  extent.limits = read_limits(arguments, bindings);
  Mask mask = Mask::parse(arguments.positional("MASK"), bindings);
  if (extent.q_len != extent.kv_len && !extent.placement && mask.compares_positions()) {
    throw UsageError(where_queries_stand(extent.q_len, extent.kv_len));
  }
  return MaskView(std::move(mask), std::move(extent));
}

// The members that every JSON answer begins with.
void begin_json(JsonWriter& json, const MaskView& view) {
  json.begin_object().member("schema", 1).member("mask", view.mask().text());
  json.key("queries").begin_array().value(view.queries().begin).value(view.queries().end).end();
  json.key("keys").begin_array().value(view.keys().begin).value(view.keys().end).end();
}

int run_draw(Context& context) {
  const Arguments& arguments = context.arguments;
  const MaskView view = read_view(arguments);
  if (arguments.has("png")) {
    const std::string path = output_path(arguments, "png", kPngMagic);
    ImagePicture options;
    options.batch = arguments.integer("batch-row");
    options.head = arguments.integer("head");
    options.max_pixels = static_cast<int>(arguments.integer("pixels"));
    options.stop = &stop_token();
    Raster raster = draw_image(view, options);
    raster.texts = {{"Title", view.mask().text()}};
    const bool json_wanted = arguments.flag("json");
    if (json_wanted && arguments.text("png") == "-") throw UsageError("--png - and --json both write to standard output; give a file name");
    save_png(path, raster);
    if (json_wanted) {
      JsonWriter json;
      begin_json(json, view);
      context.out.write(json.member("file", path).member("width", raster.width).member("height", raster.height).end().finish() + "\n");
    } else {
      context.messages.note(fmt::format("wrote {}, {} by {} pixels", arguments.text("png"), raster.width, raster.height));
    }
    return 0;
  }
  TextPicture options;
  options.batch = arguments.integer("batch-row");
  options.head = arguments.integer("head");
  options.style = arguments.flag("ascii") ? PictureStyle::kAscii : PictureStyle::kUnicode;
  options.counts = arguments.flag("counts") ? RowCounts::kShow : RowCounts::kHide;
  options.max_rows = static_cast<int>(arguments.integer("max-rows"));
  options.max_columns = static_cast<int>(arguments.integer("max-columns"));
  options.stop = &stop_token();
  const std::string picture = draw_text(view, options);
  if (!arguments.flag("json")) {
    context.out.write(picture);
    return 0;
  }
  JsonWriter json;
  begin_json(json, view);
  json.key("lines").begin_array();
  for (const std::string& line : split(picture, '\n')) json.value(line);
  context.out.write(json.end().end().finish() + "\n");
  return 0;
}

int run_count(Context& context) {
  const MaskView view = read_view(context.arguments);
  const MaskExtent& extent = view.extent();
  const int64_t visible = view.count(&stop_token());
  const double pairs = static_cast<double>(extent.batch) * static_cast<double>(extent.num_q_heads) * static_cast<double>(extent.q_len) *
                       static_cast<double>(extent.kv_len);
  const double share = pairs > 0 ? static_cast<double>(visible) / pairs : 0;
  if (context.arguments.flag("json")) {
    JsonWriter json;
    begin_json(json, view);
    json.member("batch", extent.batch).member("heads", extent.num_q_heads).member("visible", visible).member("share", share);
    context.out.write(json.end().finish() + "\n");
  } else {
    context.out.print("{} of {:.0f} pairs are visible ({:.4g} %)\n", visible, pairs, share * 100);
  }
  return 0;
}

std::string run_text(const Interval& run) {
  return run.end == run.begin + 1 ? fmt::format("{}", run.begin) : fmt::format("{}-{}", run.begin, run.end - 1);
}

// What one query sees, or who sees one key: runs of positions.
int print_runs(Context& context, std::string_view word, const MaskView& view, int64_t position, const std::vector<Interval>& runs) {
  int64_t count = 0;
  for (const Interval& run : runs) count += run.end - run.begin;
  if (context.arguments.flag("json")) {
    JsonWriter json;
    begin_json(json, view);
    json.member(word, position).member("count", count).key("runs").begin_array();
    for (const Interval& run : runs) json.begin_array().value(run.begin).value(run.end).end();
    context.out.write(json.end().end().finish() + "\n");
    return 0;
  }
  std::vector<std::string> texts;
  for (const Interval& run : runs) texts.push_back(run_text(run));
  const std::string list = texts.empty() ? "" : fmt::format(": {}", fmt::join(texts, ", "));
  if (word == "query") context.out.print("query {} sees {} key{}{}\n", position, count, count == 1 ? "" : "s", list);
  else context.out.print("key {} is seen by {} quer{}{}\n", position, count, count == 1 ? "y" : "ies", list);
  return 0;
}

int run_row(Context& context) {
  const MaskView view = read_view(context.arguments);
  const int64_t q = read_position(context.arguments, "POSITION");
  return print_runs(context, "query", view, q, view.row(context.arguments.integer("batch-row"), context.arguments.integer("head"), q));
}

int run_column(Context& context) {
  const MaskView view = read_view(context.arguments);
  const int64_t k = read_position(context.arguments, "POSITION");
  return print_runs(context, "key", view, k, view.column(context.arguments.integer("batch-row"), context.arguments.integer("head"), k, &stop_token()));
}

Positional mask_positional() {
  return {"MASK", "the rule, such as 'causal & (window(127, 0) | sinks(4))'; docs/masks.md lists the terms"};
}

}  // namespace

Command mask_draw_command() {
  return {
      .name = "mask draw",
      .summary = "draw a mask in the terminal or as a PNG file",
      .description = "Draws which query (down) may look at which key (across). Masks that are too large for the picture are drawn block by "
                     "block: full, empty or in between.",
      .examples = {{"regard mask draw \"causal & window(3, 0)\" --q-len 12", "A causal window of four keys."},
                   {"regard mask draw causal --q-len 1 --kv-len 8 --q-begin 7 --ascii", "One query that is decoded behind seven others."}},
      .positionals = {mask_positional()},
      .options = join({extent_options(),
                       {
                           {.name = "png", .type = Type::kOutputFile, .value = "FILE",
                            .help = "Writes a picture file instead; - is standard output.", .section = Section::kCommon},
                           {.name = "ascii", .help = "Uses letters and signs of ASCII only."},
                           {.name = "counts", .help = "Adds to each row how many keys it sees."},
                           {.name = "max-rows", .type = Type::kInteger, .value = "N", .help = "Most lines of the picture.",
                            .fallback = "48", .min = 1, .max = 10000},
                           {.name = "max-columns", .type = Type::kInteger, .value = "N", .help = "Most columns of the picture.",
                            .fallback = "80", .min = 16, .max = 10000},
                           {.name = "pixels", .type = Type::kInteger, .value = "N", .help = "Longest side of the PNG.",
                            .unit = "pixels", .fallback = "1024", .min = 16, .max = 8192},
                           batch_row_option(),
                           head_option(),
                           force_option(),
                       }}),
      .run = run_draw,
  };
}

Command mask_count_command() {
  return {
      .name = "mask count",
      .summary = "count the pairs that a mask lets through",
      .description = "Counts the visible pairs of query and key, exactly, over all batch rows and heads.",
      .examples = {{"regard mask count causal --q-len 4096", "How much of the square a causal mask leaves."},
                   {"regard mask count \"causal & documents(ids)\" --bind ids=ids.npy --q-len 512 --json", "Packed documents, for a script."}},
      .positionals = {mask_positional()},
      .options = extent_options(),
      .run = run_count,
  };
}

Command mask_row_command() {
  return {
      .name = "mask row",
      .summary = "list the keys that one query sees",
      .description = "Lists the positions of the keys that the query at a position sees, as runs: 0-3, 7 are the keys 0, 1, 2, 3 and 7. "
                     "With --json a run is [first, one behind the last].",
      .examples = {{"regard mask row \"causal & (window(3, 0) | sinks(1))\" 100 --q-len 128", "The window of query 100, and the sink."},
                   {"regard mask row \"prefix(4) | causal\" 2 --json", "The same question for a script."}},
      .positionals = {mask_positional(), {"POSITION", "position of the query"}},
      .options = join({extent_options(), {batch_row_option(), head_option()}}),
      .run = run_row,
  };
}

Command mask_column_command() {
  return {
      .name = "mask column",
      .summary = "list the queries that see one key",
      .description = "Lists the positions of the queries that see the key at a position, as runs: 0-3, 7 are the queries 0, 1, 2, 3 and 7. "
                     "With --json a run is [first, one behind the last].",
      .examples = {{"regard mask column \"causal & window(3, 0)\" 5 --q-len 16", "Who can still look at key 5."},
                   {"regard mask column \"blocks(4)\" 6 --json", "The same question for a script."}},
      .positionals = {mask_positional(), {"POSITION", "position of the key"}},
      .options = join({extent_options(), {batch_row_option(), head_option()}}),
      .run = run_column,
  };
}

}  // namespace regard::cli
