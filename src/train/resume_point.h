// Which checkpoint a run goes on from. Only looks: nothing in the directory changes.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "train/state_file.h"

namespace regard::train_loop {

struct ResumePoint {
  std::string directory;  ///< of the checkpoint
  StateHead head;         ///< of its state
  std::string note;       ///< why it is not the one that `latest` shows; empty when it is
};

/// The checkpoint that `latest` shows. Where that is no link to a checkpoint in the same directory (a copy that followed links, one that lost them),
/// the newest one whose state reads well to the end.
/// Errors: kNotFound when there is none; kCorruptData when what `latest` shows is damaged, or all are, with what can be gone on from.
Result<ResumePoint> find_resume_point(const std::string& run);

/// The failure for a checkpoint that turned out to be damaged: kCorruptData, with the other ones and how to go on from one.
Failure damaged_checkpoint(const std::string& run, const std::string& checkpoint, const Failure& why);

}  // namespace regard::train_loop
