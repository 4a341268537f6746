// The alphabet of byte-level BPE: every byte has a visible character, so that a vocabulary of text can hold any bytes.
// Printable bytes stand for themselves; the 68 others are numbered upwards from U+0100.
//
// Source: Radford et al., 2019, "Language models are unsupervised multitask learners" (GPT-2), its published encoder.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace regard {

constexpr char32_t kByteLevelEnd = 0x144;  ///< one more than the last character of the alphabet

constexpr bool byte_stands_for_itself(uint32_t byte) noexcept {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr std::array<char32_t, 256> make_byte_characters() noexcept {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) characters[byte] = byte_stands_for_itself(byte) ? byte : next++;
  return characters;
}
inline constexpr std::array<char32_t, 256> kByteCharacters = make_byte_characters();

constexpr std::array<int16_t, kByteLevelEnd> make_character_bytes() noexcept {
  std::array<int16_t, kByteLevelEnd> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  for (int16_t byte = 0; byte < 256; ++byte) bytes[kByteCharacters[static_cast<size_t>(byte)]] = byte;
  return bytes;
}
inline constexpr std::array<int16_t, kByteLevelEnd> kCharacterBytes = make_character_bytes();

/// The byte that `character` stands for, if it is of the alphabet.
constexpr std::optional<uint8_t> byte_of_character(char32_t character) noexcept {
  if (character >= kByteLevelEnd || kCharacterBytes[character] < 0) return std::nullopt;
  return static_cast<uint8_t>(kCharacterBytes[character]);
}

}  // namespace regard
