/* How a string of codes is kept. Eight codes that are all below 16 take four bytes, other codes a byte each. Before eight
   such groups comes a byte that says which of them take eight bytes. */
static const uint64_t HIGH_HALVES = 0xF0F0F0F0F0F0F0F0ull;

/* Packs `num` codes; room behind them is written. Returns the number of bytes. */
static int pack(uint8_t *codes, int num, uint8_t *out) {
  uint8_t *start = out, *flags = out;
  memset(codes + num, 0, 8);
  for (int i = 0; i < num; i += 8) {
    uint64_t v;
    memcpy(&v, codes + i, 8);
    if (i % 64 == 0) { flags = out++; *flags = 0; }
    if (v & HIGH_HALVES) {
      *flags |= 1 << i / 8 % 8;
      memcpy(out, &v, 8);
      out += 8;
    } else {
      v |= v >> 28;
      uint32_t halves = (uint32_t)v;
      memcpy(out, &halves, 4);
      out += 4;
    }
  }
  return out - start;
}
static void unpack(const uint8_t *bytes, int num_bytes, uint8_t *codes) {
  const uint8_t *end = bytes + num_bytes;
  while (bytes < end) {
    int flags = *bytes++;
    for (int group = 0; group < 8 && bytes < end; group++, codes += 8) {
      uint64_t v;
      if (flags >> group & 1) {
        memcpy(&v, bytes, 8);
        bytes += 8;
      } else {
        uint32_t halves;
        memcpy(&halves, bytes, 4);
        v = (halves | (uint64_t)halves << 28) & ~HIGH_HALVES;
        bytes += 4;
      }
      memcpy(codes, &v, 8);
    }
  }
}
