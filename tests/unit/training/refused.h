// What is expected of a call that the C++ layer refuses by itself.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "kolo/kolo.hpp"

namespace training_test {

// It throws; its text has the words, and begins as kolo_last_error()'s would.
inline void expect_refused(const std::function<void()>& call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown about " << words;
  } catch (const kolo::Error& error) {
    EXPECT_EQ(error.status(), KOLO_INVALID_ARGUMENT) << error.what();
    EXPECT_THAT(error.what(), testing::StartsWith("invalid argument: "));
    EXPECT_THAT(error.what(), testing::HasSubstr(words));
  }
}

}  // namespace training_test
