// What a call that has to be refused says.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "regard/error.h"

namespace regard::test {

/// The message of the Error that `call` throws; a failure when there is none, or it has another code.
template <class F>
std::string message_of(F&& call, Code code = Code::kInvalidArgument) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

}  // namespace regard::test
