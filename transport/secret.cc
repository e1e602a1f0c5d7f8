#include "transport/secret.h"

#include <openssl/crypto.h>

namespace kolo::internal {

void wipe(std::string& text) noexcept {
  // Also what it held when it was longer, or small enough to lie within.
  text.resize(text.capacity());
  OPENSSL_cleanse(text.data(), text.size());
  text.clear();
}

void wipe(std::span<char> bytes) noexcept { OPENSSL_cleanse(bytes.data(), bytes.size()); }

}  // namespace kolo::internal
