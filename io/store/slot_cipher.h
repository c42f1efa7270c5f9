// SlotCipher: encrypts what is written to spill files, so that a drive that is stolen, sold or read by
// another shows nothing of the job. AES-256-XTS by OpenSSL, which is opened when it is asked for. The key is
// made for the process and never leaves it: what was spilled by a job that has ended cannot be read by
// anyone.
//
// The engine makes it where SPILLWAY_ENCRYPT is on. SpillStore calls it on its completion workers. Not having
// OpenSSL, or memory for the key, is an error of Create. Calls of OpenSSL fail for want of memory, and once
// the process ends.

#ifndef SPILLWAY_IO_STORE_SLOT_CIPHER_H_
#define SPILLWAY_IO_STORE_SLOT_CIPHER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace spillway::io {

class SlotCipher {
 public:
  // What tells one use of one slot from all others: equal bytes have other cipher text in each.
  struct Use {
    uint32_t directory = 0;
    uint32_t index = 0;
    uint32_t generation = 0;
  };

  // `library`: of OpenSSL 3. Unavailable, with the loader's words, where it cannot be opened;
  // FailedPrecondition where the key's memory cannot be kept from being swapped out (ulimit -l).
  static absl::StatusOr<std::unique_ptr<SlotCipher>> Create(const std::string& library = "libcrypto.so.3");
  ~SlotCipher();
  SlotCipher(const SlotCipher&) = delete;
  SlotCipher& operator=(const SlotCipher&) = delete;

  // `bytes` from `plain` into `cipher`, which may be the same; 16 bytes to 16 MiB. Any thread.
  absl::Status Encrypt(const Use& use, const void* plain, uint32_t bytes, void* cipher) const;
  absl::Status Decrypt(const Use& use, const void* cipher, uint32_t bytes, void* plain) const;

 private:
  struct OpenSsl;
  class Key;
  SlotCipher(std::unique_ptr<const OpenSsl> openssl, std::unique_ptr<const Key> key);
  absl::Status Convert(bool encrypt, const Use& use, const void* from, uint32_t bytes, void* to) const;

  const std::unique_ptr<const OpenSsl> openssl_;
  const std::unique_ptr<const Key> key_;
  void* algorithm_ = nullptr;  // EVP_CIPHER
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_SLOT_CIPHER_H_
