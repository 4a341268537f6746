// Automatic differentiation on a tape, for tests alone: seven operations on matrices of doubles, slow and plain. Everything
// else, softmax and norms included, is put together from them, so that nothing here was derived by hand for a Transformer.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace regard::test {

class Tape {
 public:
  /// Number of a matrix on the tape.
  using Var = size_t;

  struct Matrix {
    int64_t rows, columns;
    std::vector<double> x, gradient;
  };

  Var leaf(int64_t rows, int64_t columns, std::vector<double> x) {
    const size_t size = x.size();
    values_.push_back({rows, columns, std::move(x), std::vector<double>(size, 0.0)});
    return values_.size() - 1;
  }
  const Matrix& operator[](Var v) const { return values_[v]; }
  int64_t rows(Var v) const { return values_[v].rows; }
  int64_t columns(Var v) const { return values_[v].columns; }

  /// The elements of `a` at these places (row-major numbers), -1 for a 0: rows, columns, transposes, tables.
  Var pick(Var a, int64_t rows, int64_t columns, std::vector<int64_t> index) {
    std::vector<double> y;
    for (const int64_t i : index) y.push_back(i < 0 ? 0.0 : values_[a].x[static_cast<size_t>(i)]);
    const Var v = leaf(rows, columns, std::move(y));
    back_.push_back([this, a, v, index = std::move(index)] {
      for (size_t i = 0; i < index.size(); ++i)
        if (index[i] >= 0) values_[a].gradient[static_cast<size_t>(index[i])] += values_[v].gradient[i];
    });
    return v;
  }

  /// The product of matrices.
  Var times(Var a, Var b) {
    const int64_t n = rows(a), m = columns(b), k = columns(a);
    std::vector<double> y(static_cast<size_t>(n * m));
    each(n, m, k, [&](size_t i, size_t j, size_t l) { y[i] += values_[a].x[j] * values_[b].x[l]; });
    const Var v = leaf(n, m, std::move(y));
    back_.push_back([this, a, b, v, n, m, k] {
      each(n, m, k, [&](size_t i, size_t j, size_t l) {
        values_[a].gradient[j] += values_[v].gradient[i] * values_[b].x[l];
        values_[b].gradient[l] += values_[v].gradient[i] * values_[a].x[j];
      });
    });
    return v;
  }

  /// Sum and product of elements; an axis of `b` with extent 1 is repeated.
  Var add(Var a, Var b) {
    return zip(a, b, [](double x, double y) { return x + y; }, [](double, double) { return 1.0; }, [](double, double) { return 1.0; });
  }
  Var multiply(Var a, Var b) {
    return zip(a, b, [](double x, double y) { return x * y; }, [](double, double y) { return y; }, [](double x, double) { return x; });
  }

  /// f of every element, with its derivative.
  Var map(Var a, std::function<double(double)> f, std::function<double(double)> slope) {
    std::vector<double> y;
    for (const double x : values_[a].x) y.push_back(f(x));
    const Var v = leaf(rows(a), columns(a), std::move(y));
    back_.push_back([this, a, v, slope = std::move(slope)] {
      for (size_t i = 0; i < values_[a].x.size(); ++i) values_[a].gradient[i] += values_[v].gradient[i] * slope(values_[a].x[i]);
    });
    return v;
  }

  /// The sums of the rows, [rows, 1].
  Var row_sums(Var a) { return times(a, leaf(columns(a), 1, std::vector<double>(static_cast<size_t>(columns(a)), 1.0))); }

  /// The gradients of the sum of `v`.
  void backward(Var v) {
    for (double& g : values_[v].gradient) g = 1;
    for (size_t i = back_.size(); i-- > 0;) back_[i]();
  }

  // ---- from the operations above
  Var constant(double x) { return leaf(1, 1, {x}); }
  Var scale(Var a, double factor) { return multiply(a, constant(factor)); }
  Var subtract(Var a, Var b) { return add(a, scale(b, -1)); }
  Var transposed(Var a) {
    std::vector<int64_t> index;
    for (int64_t j = 0; j < columns(a); ++j)
      for (int64_t i = 0; i < rows(a); ++i) index.push_back(i * columns(a) + j);
    return pick(a, columns(a), rows(a), std::move(index));
  }
  Var exp(Var a) { return map(a, [](double x) { return std::exp(x); }, [](double x) { return std::exp(x); }); }
  Var log(Var a) { return map(a, [](double x) { return std::log(x); }, [](double x) { return 1 / x; }); }
  Var power(Var a, double p) {  // of 0: 0
    return map(a, [p](double x) { return x == 0 ? 0 : std::pow(x, p); }, [p](double x) { return x == 0 ? 0 : p * std::pow(x, p - 1); });
  }
  /// The weights of rows of scores, where `visible` is 1.
  Var softmax(Var scores, Var visible) {
    const Var e = multiply(exp(scores), visible);
    return multiply(e, power(row_sums(e), -1));
  }

 private:
  // i = (r, c), j = (r, l), l = (l, c) over n x m results and k products.
  template <class F>
  void each(int64_t n, int64_t m, int64_t k, F f) {
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c < m; ++c)
        for (int64_t l = 0; l < k; ++l) f(static_cast<size_t>(r * m + c), static_cast<size_t>(r * k + l), static_cast<size_t>(l * m + c));
  }
  template <class F, class Da, class Db>
  Var zip(Var a, Var b, F f, Da da, Db db) {
    const int64_t n = rows(a), m = columns(a), bn = rows(b), bm = columns(b);
    const auto at = [=](int64_t i) { return static_cast<size_t>((bn == 1 ? 0 : i / m) * bm + (bm == 1 ? 0 : i % m)); };
    std::vector<double> y;
    for (int64_t i = 0; i < n * m; ++i) y.push_back(f(values_[a].x[static_cast<size_t>(i)], values_[b].x[at(i)]));
    const Var v = leaf(n, m, std::move(y));
    back_.push_back([this, a, b, v, n, m, at, da, db] {
      for (int64_t i = 0; i < n * m; ++i) {
        const auto u = static_cast<size_t>(i);
        const double x = values_[a].x[u], z = values_[b].x[at(i)], g = values_[v].gradient[u];
        values_[a].gradient[u] += g * da(x, z);
        values_[b].gradient[at(i)] += g * db(x, z);
      }
    });
    return v;
  }

  std::vector<Matrix> values_;
  std::vector<std::function<void()>> back_;
};

}  // namespace regard::test
