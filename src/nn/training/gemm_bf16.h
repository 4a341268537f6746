// The products of TrainableLinear on bf16 dot products: operands are rounded to bf16 when they are packed, sums are f32. Every
// element is one chain over pairs of the inner index (kernels/reference/bf16.h), whatever the threads and the blocking.
//
// Only where kernels().gemm_bf16 is not null.
#pragma once

#include "nn/training/gemm_parts.h"

namespace regard::nn::training::bf16 {

/// Dwords of the panels of a matrix [inner, columns].
int64_t panel_dwords(int64_t columns, int64_t inner);
void pack(const GemmContext& context, const Matrix& b, uint32_t* panels);

/// Floats of scratch for each of the functions below.
int64_t rows_scratch(const ThreadPool& pool, int64_t rows, int64_t inner);
int64_t gradient_scratch(const ThreadPool& pool, int64_t height, int64_t width, int64_t rows);

/// c = a times packed panels, then + bias unless it is null.
void multiply_rows(const GemmContext& context, TensorView<const float> a, const uint32_t* panels, const float* bias,
                   TensorView<float> c, Accumulate accumulate);

/// c[i][j] += sum over m of a[m][i] b[m][j], for c dense; sums of columns are added in f32, unrounded.
void multiply_gradient(const GemmContext& context, TensorView<const float> a, TensorView<const float> b, float* c, ColumnSums sums);

}  // namespace regard::nn::training::bf16
