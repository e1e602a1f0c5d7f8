#include "transport/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <string>

#include "base/check.h"

namespace kolo::internal {
namespace {

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

void Key::wipe(Digest& digest) noexcept { OPENSSL_cleanse(digest.data(), digest.size()); }

void Hmac::Free::operator()(evp_mac_ctx_st* context) const { EVP_MAC_CTX_free(context); }

Hmac::Hmac(std::span<const std::byte> key) {
  EVP_MAC* mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  KOLO_CHECK(mac != nullptr);
  context_.reset(EVP_MAC_CTX_new(mac));
  EVP_MAC_free(mac);  // the context holds its own reference
  KOLO_CHECK(context_ != nullptr);
  std::string digest = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string("digest", digest.data(), 0),
                                   OSSL_PARAM_construct_end()};
  KOLO_CHECK(EVP_MAC_init(context_.get(), raw(key), key.size(), parameters) == 1);
}

Hmac::Hmac(Hmac&&) noexcept = default;
Hmac& Hmac::operator=(Hmac&&) noexcept = default;
Hmac::~Hmac() = default;

Digest Hmac::operator()(std::span<const std::span<const std::byte>> parts) {
  KOLO_CHECK(EVP_MAC_init(context_.get(), nullptr, 0, nullptr) == 1);  // the same key again
  for (const auto part : parts) {
    KOLO_CHECK(EVP_MAC_update(context_.get(), raw(part), part.size()) == 1);
  }
  Digest code{};
  std::size_t bytes = 0;
  KOLO_CHECK(EVP_MAC_final(context_.get(), reinterpret_cast<unsigned char*>(code.data()), &bytes,
                           code.size()) == 1);
  KOLO_CHECK(bytes == code.size());
  return code;
}

Digest sha256(std::string_view text) {
  Digest digest{};
  std::size_t bytes = 0;
  KOLO_CHECK(EVP_Q_digest(nullptr, "SHA256", nullptr, text.data(), text.size(),
                          reinterpret_cast<unsigned char*>(digest.data()), &bytes) == 1);
  return digest;
}

Digest random_digest() {
  Digest digest{};
  // Not OpenSSL's generator, which needs memory. So few bytes come whole.
  KOLO_CHECK(::getrandom(digest.data(), digest.size(), 0) == static_cast<ssize_t>(digest.size()));
  return digest;
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace kolo::internal
