#include "attend_gradients.h"

#include <fmt/format.h>

#include <algorithm>

#include "input.h"

namespace regard::cli {
namespace {

std::vector<int64_t> shape_of(const TensorView<const float>& view) {
  return {view.shape.begin(), view.shape.begin() + view.rank};
}

// A gradient that comes in has the shape of what it is the gradient of.
Tensor load_gradient(const Arguments& arguments, std::string_view option, const std::vector<int64_t>& shape) {
  Tensor tensor = load_tensor(arguments, option, shape.size(), shape_text(shape));
  if (tensor.shape != shape) {
    throw UsageError(fmt::format("--{} {} has the shape {}; give {}", option, arguments.text(option), shape_text(tensor.shape), shape_text(shape)));
  }
  return tensor;
}

}  // namespace

const std::vector<std::string_view>& gradient_outputs() {
  static const std::vector<std::string_view> names = {"dq", "dk", "dv", "dbias", "dt5-table", "dsink", "dxl-u", "dxl-v", "dxl-r"};
  return names;
}

GradientCall::Result& GradientCall::result(std::string_view option) {
  return *std::find_if(results_.begin(), results_.end(), [&](const Result& r) { return r.option == option; });
}

GradientCall::GradientCall(const Arguments& arguments, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const bool given = arguments.has("grad") || arguments.has("grad-lse");
  const TensorView<const float> t5 = options.t5 ? options.t5->table : TensorView<const float>{};
  const TransformerXl xl = options.xl.value_or(TransformerXl{});
  const std::vector<std::vector<int64_t>> shapes = {q.shape,      k.shape,           v.shape,        shape_of(options.bias), shape_of(t5),
                                                    shape_of(options.sink), shape_of(xl.u), shape_of(xl.v),         shape_of(xl.r)};
  bool wanted = false;
  for (size_t i = 0; i < shapes.size(); ++i) {
    Result result;
    result.option = gradient_outputs()[i];
    if (arguments.has(result.option)) {
      wanted = true;
      if (!given) throw UsageError(fmt::format("--{} needs --grad or --grad-lse, the gradient that comes in", result.option));
      if (shapes[i].empty()) throw UsageError(fmt::format("--{} needs --{}", result.option, result.option.substr(1)));
      result.path = output_path(arguments, result.option, kNpyMagic);
      result.tensor = empty_tensor(shapes[i]);
    }
    results_.push_back(std::move(result));
  }
  if (!given) return;
  if (!wanted) {
    throw UsageError(fmt::format("--{} is given, but no gradient is wanted; give --{}", arguments.has("grad") ? "grad" : "grad-lse",
                                 fmt::join(gradient_outputs(), ", --")));
  }
  const std::vector<int64_t> out = {q.batch(), q.heads(), q.length(), v.dim()}, lse = {q.batch(), q.heads(), q.length()};
  dout_ = arguments.has("grad") ? load_gradient(arguments, "grad", out) : empty_tensor(out);
  if (arguments.has("grad-lse")) dlse_ = load_gradient(arguments, "grad-lse", lse);
}

void GradientCall::compute(Tensor& q, Tensor& k, Tensor& v, Tensor& out, Tensor& lse, const Mask& mask, const AttentionOptions& options) {
  if (dout_.shape.empty()) return;
  attend_backward(q.view(), k.view(), v.view(), out.view(), lse.view(), dout_.view(),
                  dlse_.shape.empty() ? TensorView<float>{} : dlse_.view(), mask, options, result("dq").view(), result("dk").view(),
                  result("dv").view(),
                  {.bias = result("dbias").view(),
                   .t5_table = result("dt5-table").view(),
                   .sink = result("dsink").view(),
                   .xl_u = result("dxl-u").view(),
                   .xl_v = result("dxl-v").view(),
                   .xl_r = result("dxl-r").view()});
}

void GradientCall::save(const std::function<void(const std::string&, const Tensor&)>& write) const {
  for (const Result& result : results_) {
    if (!result.path.empty()) write(result.path, result.tensor);
  }
}

std::vector<Option> gradient_options() {
  return {
      {.name = "grad", .type = Type::kInputFile, .value = "FILE",
       .help = "Gradient of the result, for the ones below: float [batch, heads, q_len, value_dim]; without it, 0."},
      {.name = "grad-lse", .type = Type::kInputFile, .value = "FILE", .help = "Gradient of --lse: float [batch, heads, q_len]; without it, 0."},
      {.name = "dq", .type = Type::kOutputFile, .value = "FILE", .help = "Gradient of the queries, in the shape of --q; before --rope turned them."},
      {.name = "dk", .type = Type::kOutputFile, .value = "FILE", .help = "Gradient of the keys, likewise."},
      {.name = "dv", .type = Type::kOutputFile, .value = "FILE", .help = "Gradient of the values."},
      {.name = "dbias", .type = Type::kOutputFile, .value = "FILE",
       .help = "Gradient of --bias, summed over the axes on which that has 1; exactly 0 where the mask hides."},
      {.name = "dt5-table", .type = Type::kOutputFile, .value = "FILE", .help = "Gradient of --t5-table."},
      {.name = "dsink", .type = Type::kOutputFile, .value = "FILE", .help = "Gradient of --sink."},
      {.name = "dxl-u", .type = Type::kOutputFile, .value = "FILE", .help = "Gradient of --xl-u."},
      {.name = "dxl-v", .type = Type::kOutputFile, .value = "FILE", .help = "Gradient of --xl-v."},
      {.name = "dxl-r", .type = Type::kOutputFile, .value = "FILE", .help = "Gradient of --xl-r."},
  };
}

}  // namespace regard::cli
