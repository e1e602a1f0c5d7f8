// The three things kolo takes from OpenSSL: HMAC-SHA256, random bytes, a comparison in constant
// time. Hmac is for one thread at a time; the functions are for any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

struct evp_mac_ctx_st;

namespace kolo::internal {

using Digest = std::array<std::byte, 32>;

// A session's key: a digest that is wiped wherever it was held. A plain value.
class Key {
 public:
  Key() = default;
  explicit Key(Digest&& taken) : digest_(taken) { wipe(taken); }
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key() { wipe(digest_); }

  operator const Digest&() const { return digest_; }  // NOLINT: never longer than the Key
  friend bool operator==(const Key&, const Key&) = default;

 private:
  static void wipe(Digest& digest) noexcept;
  Digest digest_{};
};

// HMAC-SHA256 under one key, many times. Allocates only when made.
class Hmac {
 public:
  explicit Hmac(std::span<const std::byte> key);
  Hmac(Hmac&&) noexcept;
  Hmac& operator=(Hmac&&) noexcept;
  ~Hmac();

  // The code of the concatenation of `parts`.
  Digest operator()(std::span<const std::span<const std::byte>> parts);

 private:
  struct Free {
    void operator()(evp_mac_ctx_st* context) const;
  };
  std::unique_ptr<evp_mac_ctx_st, Free> context_;
};

[[nodiscard]] Digest sha256(std::string_view text);
[[nodiscard]] Digest random_digest();  // 32 bytes nobody can guess
[[nodiscard]] bool equal_in_constant_time(std::span<const std::byte> a,
                                          std::span<const std::byte> b);

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace kolo::internal
