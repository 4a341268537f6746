// The inside of MaskView, shared with the pictures.
#pragma once

#include "mask/plan.h"
#include "regard/mask_view.h"

namespace regard {

struct MaskView::Impl {
  Mask mask;
  MaskExtent extent;
  MaskPlan plan;
  Interval queries, keys;

  void require_row(std::string_view function, int64_t batch, int64_t head) const;
};

}  // namespace regard
