// The job's secret from a file, for ranks that are started by hand.
#pragma once

#include <string>

#include "base/status.h"
#include "transport/secret.h"

namespace kolo::internal {

// The file's first line. INVALID_ARGUMENT: it cannot be read, is no regular file, somebody else
// may read or write it (its owner is this user or root, its mode 0600 or 0400), or its first line
// is no secret: short, very long, or ordinary text, which has blanks.
[[nodiscard]] Result<Secret> read_secret_file(const std::string& path);

}  // namespace kolo::internal
