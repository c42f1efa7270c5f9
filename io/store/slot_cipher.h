// SlotCipher: encrypts the bytes that are written to spill files, so that a drive that is stolen, sold or
// read by another shows nothing of the job. It is AES-256-XTS by OpenSSL, which is opened only when
// encryption is requested. The key is made for the process and never leaves it, so nobody can read the
// spilled bytes of a job that has ended.
//
// The engine creates it where SPILLWAY_ENCRYPT is on, and SpillStore calls it on its completion workers.
// Create fails without OpenSSL, or without memory for the key. Calls of OpenSSL fail for want of memory, and
// after the process has begun to end.

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
  // Distinguishes one use of one slot from all others: equal bytes have different cipher text in each.
  struct Use {
    uint32_t directory = 0;
    uint32_t index = 0;
    uint32_t generation = 0;
  };

  // `library` is OpenSSL 3's. Fails with Unavailable and the loader's message when it cannot be opened, and
  // with FailedPrecondition when the key's memory cannot be kept from being swapped out (ulimit -l).
  static absl::StatusOr<std::unique_ptr<SlotCipher>> Create(const std::string& library = "libcrypto.so.3");
  ~SlotCipher();
  SlotCipher(const SlotCipher&) = delete;
  SlotCipher& operator=(const SlotCipher&) = delete;

  // Converts `bytes` from `plain` into `cipher`, which may be the same; 16 bytes to 16 MiB. Any thread.
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
