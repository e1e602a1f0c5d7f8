// kolo::Group; included by kolo.hpp. C++17 or later.
#ifndef KOLO_GROUP_HPP_
#define KOLO_GROUP_HPP_

#include <exception>
#include <string>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/kolo.h"
#include "kolo/request.hpp"

namespace kolo {

// This thread's open group: collectives that the thread submits are one unit, until end().
class Group {
 public:
  explicit Group(kolo_context* context, const std::string& name = "")
      : context_(context), exceptions_(std::uncaught_exceptions()) {
    check(kolo_group_begin(context, name.c_str()));
  }
  Group(Group&& other) noexcept
      : context_(std::exchange(other.context_, nullptr)), exceptions_(other.exceptions_) {}
  Group& operator=(Group&&) = delete;
  ~Group() {
    if (context_ == nullptr) return;
    // Half a group must not be sent when its making was interrupted; but a group can only be closed
    // by submitting it, so the context is aborted then: the other ranks would wait for it.
    if (std::uncaught_exceptions() > exceptions_) {
      kolo_abort(context_, "an exception left a group half made");
    }
    kolo_group_end(context_, nullptr);
  }

  // Submits the group and waits for it.
  void end() { check(kolo_group_end(std::exchange(context_, nullptr), nullptr)); }
  // Submits the group.
  Request end_async() {
    kolo_context* const context = std::exchange(context_, nullptr);
    kolo_request request = KOLO_REQUEST_NULL;
    check(kolo_group_end(context, &request));
    return {context, request};
  }

 private:
  kolo_context* context_;
  int exceptions_;
};

}  // namespace kolo

#endif  // KOLO_GROUP_HPP_
