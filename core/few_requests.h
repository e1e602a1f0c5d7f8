// FewRequests: the requests that one call handles, on the stack unless there are many.
#pragma once

#include <boost/container/small_vector.hpp>

#include "core/request_state.h"

namespace kolo::internal {

using FewRequests = boost::container::small_vector<RequestPtr, 64>;

}  // namespace kolo::internal
