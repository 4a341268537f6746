// `regard mask prove|why`: what a mask promises, and why one pair is visible or hidden.
#include <fmt/format.h>

#include <algorithm>

#include "command.h"
#include "mask_options.h"
#include "regard/error.h"
#include "regard/json.h"
#include "regard/mask.h"
#include "regard/mask_proof.h"

namespace regard::cli {
namespace {

constexpr double kMostTokens = 1e18;

bool stands_against_keys(const MaskProperty& property) {
  using Kind = MaskProperty::Kind;
  return property.kind == Kind::kCausal || property.kind == Kind::kDecodeEqualsPrefill || property.kind == Kind::kRing ||
         (property.mask && property.mask->compares_positions());
}

ProofBounds read_bounds(const Arguments& arguments, const Bindings& bindings, const Mask& mask, const std::vector<MaskProperty>& properties) {
  const auto number = [&](std::string_view option) {
    return arguments.has(option) ? std::optional<int64_t>(arguments.integer(option)) : std::nullopt;
  };
  ProofBounds bounds;
  bounds.q_len = number("q-len");
  bounds.kv_len = number("kv-len");
  bounds.q_begin = number("q-begin");
  bounds.batch = number("batch");
  bounds.num_q_heads = number("heads");
  bounds.limits = read_limits(arguments, bindings);
  bounds.max_work = arguments.integer("max-steps");
  bounds.stop = &stop_token();
  if (bounds.q_begin && !bounds.q_len) throw UsageError("--q-begin is given without --q-len: without lengths, queries begin at 0");
  const bool compares = mask.compares_positions() || std::any_of(properties.begin(), properties.end(), stands_against_keys);
  if (bounds.q_len && bounds.kv_len && *bounds.q_len != *bounds.kv_len && !bounds.q_begin && compares) {
    throw UsageError(where_queries_stand(*bounds.q_len, *bounds.kv_len));
  }
  return bounds;
}

std::string place(const CounterExample& e) {
  std::string text = fmt::format("batch row {}, head {}", e.batch, e.head);
  if (e.q) text += fmt::format(", query {}", *e.q);
  if (e.k) text += fmt::format(", key {}", *e.k);
  return text;
}

std::string scope(const Proof& proof) { return proof.scope == "all lengths" ? "for all lengths" : "for " + proof.scope; }

void print_proof(Output& out, const Proof& proof) {
  out.print("{}: {}\n", proof.property, verdict_name(proof.verdict));
  out.print("  {}, by {}\n", scope(proof), proof.method);
  if (!proof.reason.empty()) out.print("  {}\n", proof.reason);
  if (!proof.counter_example) return;
  const CounterExample& e = *proof.counter_example;
  out.print("  {}: expected {}, found {}\n", place(e), e.expected, e.found);
  out.print("  {}\n", e.because);
}

void write_proof(JsonWriter& json, const Proof& proof) {
  json.begin_object().member("property", proof.property).member("verdict", verdict_name(proof.verdict));
  json.member("scope", proof.scope).member("method", proof.method);
  if (!proof.reason.empty()) json.member("reason", proof.reason);
  if (proof.counter_example) {
    const CounterExample& e = *proof.counter_example;
    json.key("counter_example").begin_object().member("batch", e.batch).member("head", e.head);
    if (e.q) json.member("query", *e.q);
    if (e.k) json.member("key", *e.k);
    json.member("expected", e.expected).member("found", e.found).member("because", e.because).end();
  }
  json.end();
}

int run_prove(Context& context) {
  const Arguments& arguments = context.arguments;
  const Bindings bindings = read_bindings(arguments);
  const Mask mask = Mask::parse(arguments.positional("MASK"), bindings);
  std::vector<MaskProperty> properties;
  for (const std::string& text : arguments.list("property")) properties.push_back(MaskProperty::parse(text, bindings));
  const ProofBounds bounds = read_bounds(arguments, bindings, mask, properties);
  std::vector<Proof> proofs;
  for (const MaskProperty& property : properties) proofs.push_back(prove(mask, property, bounds));

  if (arguments.flag("json")) {
    JsonWriter json;
    json.begin_object().member("schema", 1).member("mask", mask.text()).key("proofs").begin_array();
    for (const Proof& proof : proofs) write_proof(json, proof);
    context.out.write(json.end().end().finish() + "\n");
  } else {
    for (const Proof& proof : proofs) print_proof(context.out, proof);
  }
  const auto any = [&](Verdict verdict) {
    return std::any_of(proofs.begin(), proofs.end(), [&](const Proof& proof) { return proof.verdict == verdict; });
  };
  if (any(Verdict::kRefuted)) return exit_status(Code::kFailedCheck);
  return any(Verdict::kNotDecided) ? exit_status(Code::kUnsupported) : 0;
}

void print_tree(Output& out, const MaskExplanation& node, int level) {
  out.print("{:<4}{:{}}{}\n", node.sees ? "yes" : "no", "", 2 * level, node.text);
  for (const MaskExplanation& part : node.parts) print_tree(out, part, level + 1);
}

void write_tree(JsonWriter& json, const MaskExplanation& node) {
  json.begin_object().member("text", node.text).member("visible", node.sees);
  if (!node.parts.empty()) {
    json.key("parts").begin_array();
    for (const MaskExplanation& part : node.parts) write_tree(json, part);
    json.end();
  }
  json.end();
}

int run_why(Context& context) {
  const Arguments& arguments = context.arguments;
  const Mask mask = Mask::parse(arguments.positional("MASK"), read_bindings(arguments));
  const int64_t q = read_position(arguments, "QUERY"), k = read_position(arguments, "KEY");
  const int64_t batch = arguments.integer("batch-row"), head = arguments.integer("head");
  const MaskExplanation tree = explain(mask, batch, head, q, k);
  const std::string decision = explain_decision(mask, batch, head, q, k);
  if (arguments.flag("json")) {
    JsonWriter json;
    json.begin_object().member("schema", 1).member("mask", mask.text()).member("batch", batch).member("head", head);
    json.member("query", q).member("key", k).member("visible", tree.sees).member("because", decision).key("tree");
    write_tree(json, tree);
    context.out.write(json.end().finish() + "\n");
    return 0;
  }
  context.out.print("query {}, key {}: {}, {}\n", q, k, tree.sees ? "visible" : "hidden", decision);
  print_tree(context.out, tree, 0);
  return 0;
}

}  // namespace

Command mask_prove_command() {
  return {
      .name = "mask prove",
      .summary = "prove or refute what a mask promises",
      .description = "Decides claims about a mask, for all lengths unless some are given. A refuted claim comes with its smallest "
                     "counter-example and the term that allowed or forbade it. The status is 0 when every claim is proved, 1 when one is "
                     "refuted, else 8 when one is not decided. docs/masks.md lists the properties.",
      .examples = {{"regard mask prove \"causal & window(127, 0)\" --property causal --property \"ring(128)\"",
                    "Nothing behind the query, and a ring of 128 slots is enough."},
                   {"regard mask prove \"window(1000, 0)\" --property equals:causal --json", "Where two masks first differ, for a script."}},
      .positionals = {{"MASK", "the rule, such as 'causal & (window(127, 0) | sinks(4))'; docs/masks.md lists the terms"}},
      .options = join({{
                           {.name = "property", .letter = 'p', .type = Type::kText, .value = "NAME",
                            .help = "A claim: causal, no-empty-row, reachable, decode-equals-prefill, 'window(L, R)', 'documents(...)', "
                                    "'lengths(...)', 'implies:MASK', 'equals:MASK', 'ring(SLOTS)', 'ring(SLOTS, CHUNK)' or "
                                    "'shards(CUT; CUT)'.",
                            .presence = Presence::kRequired, .repeat = Repeat::kMany, .section = Section::kCommon},
                           {.name = "q-len", .type = Type::kInteger, .value = "N",
                            .help = "Number of queries; without both lengths, the claim is about all lengths.", .min = 0, .max = kMostTokens,
                            .section = Section::kCommon},
                           {.name = "kv-len", .type = Type::kInteger, .value = "N", .help = "Number of keys; without it, as many as queries.",
                            .min = 0, .max = kMostTokens, .section = Section::kCommon},
                           {.name = "q-begin", .type = Type::kInteger, .value = "P",
                            .help = "Position of the first query. Needed when queries and keys differ in number and the mask or the claim "
                                    "compares positions.",
                            .min = 0, .max = kMostTokens, .section = Section::kCommon},
                           {.name = "batch", .type = Type::kInteger, .value = "N",
                            .help = "Number of batch rows; without it, as many as the mask tells apart.", .min = 1, .max = 1e6},
                           {.name = "heads", .type = Type::kInteger, .value = "N",
                            .help = "Number of query heads; without it, as many as the mask tells apart.", .min = 1, .max = 65536},
                           {.name = "max-steps", .type = Type::kInteger, .value = "N",
                            .help = "Steps of reasoning after which a claim is not decided.", .fallback = "20000000", .min = 1, .max = 1e15},
                       },
                       mask_limit_options(),
                       {json_option()}}),
      .run = run_prove,
  };
}

Command mask_why_command() {
  return {
      .name = "mask why",
      .summary = "explain why a pair is visible or hidden",
      .description = "Says which term of a mask lets the query at one position look at the key at another, or holds it back, and shows the "
                     "expression with the answer of each part.",
      .examples = {{"regard mask why \"causal & (window(3, 0) | sinks(1))\" 100 0", "Query 100 sees key 0, because of the sink."},
                   {"regard mask why \"per_head(causal, chunk(4))\" 5 3 --head 1 --json", "The same question about head 1, for a script."}},
      .positionals = {{"MASK", "the rule"}, {"QUERY", "position of the query"}, {"KEY", "position of the key"}},
      .options = join({{mask_limit_options().front()}, {batch_row_option(), head_option(), json_option()}}),
      .run = run_why,
  };
}

}  // namespace regard::cli
