// kolo::Config; included by kolo.hpp. C++17 or later.
#ifndef KOLO_CONFIG_HPP_
#define KOLO_CONFIG_HPP_

#include <string>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/kolo.h"

namespace kolo {

// Options for kolo_init(); see docs/options.md for the keys.
class Config {
 public:
  Config() { check(kolo_config_create(&config_)); }
  Config(Config&& other) noexcept : config_(std::exchange(other.config_, nullptr)) {}
  Config& operator=(Config&& other) noexcept {
    std::swap(config_, other.config_);
    return *this;
  }
  ~Config() { kolo_config_destroy(config_); }

  Config& set(const std::string& key, const std::string& value) {
    check(kolo_config_set(config_, key.c_str(), value.c_str()));
    return *this;
  }
  std::string get(const std::string& key) const {
    const char* value = nullptr;
    check(kolo_config_get(config_, key.c_str(), &value));
    return value;
  }
  Config& log_to(kolo_log_callback callback, void* user) {
    check(kolo_set_log_callback(config_, callback, user));
    return *this;
  }
  const kolo_config* handle() const noexcept { return config_; }

 private:
  kolo_config* config_ = nullptr;
};

}  // namespace kolo

#endif  // KOLO_CONFIG_HPP_
