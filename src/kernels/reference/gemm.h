// The gradients of y = x W^T as mathematics: plain loops, never optimised; the kernels must equal them bit for bit where the
// scalar type is float. linear() in linear.h is the way forward. All matrices are dense: x [rows, in], dy [rows, out], w [out, in].
#pragma once

#include <cstdint>

#include "kernels/reference/linear.h"

namespace regard::kernels::reference {

/// dx[m][k] += sum over n of dy[m][n] w[n][k], rising n.
template <class T, class MultiplyAdd = FusedMultiplyAdd>
void linear_backward_input(const T* dy, const T* w, int64_t rows, int64_t in, int64_t out, T* dx, MultiplyAdd multiply_add = {}) {
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t k = 0; k < in; ++k)
      for (int64_t n = 0; n < out; ++n) dx[m * in + k] = multiply_add(dy[m * out + n], w[n * in + k], dx[m * in + k]);
}

/// dw[n][k] += sum over m of dy[m][n] x[m][k] and db[n] += sum over m of dy[m][n], rising m.
template <class T, class MultiplyAdd = FusedMultiplyAdd>
void linear_backward_weight(const T* x, const T* dy, int64_t rows, int64_t in, int64_t out, T* dw, T* db, MultiplyAdd multiply_add = {}) {
  for (int64_t n = 0; n < out; ++n)
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t k = 0; k < in; ++k) dw[n * in + k] = multiply_add(dy[m * out + n], x[m * in + k], dw[n * in + k]);
      db[n] = db[n] + dy[m * out + n];
    }
}

}  // namespace regard::kernels::reference
