#include "nn/block.h"

const char *tt_level_name(enum tt_level level)
{
    static const char *const names[TT_LEVEL_COUNT] = {"none", "cheap", "block", "offload"};
    return (unsigned)level < TT_LEVEL_COUNT ? names[level] : "unknown";
}

enum tt_block_exchange tt_block_exchange_of(const struct tt_block *block)
{
    return block->ops->exchange != NULL ? block->ops->exchange(block) : TT_EXCHANGE_NONE;
}

unsigned tt_block_levels(const struct tt_block *block)
{
    bool again = tt_block_exchange_of(block) != TT_EXCHANGE_STATISTICS;
    return again ? block->ops->levels : block->ops->levels & (TT_LEVEL_BIT(TT_RECOMPUTE_BLOCK) - 1);
}

enum tt_level tt_level_among(unsigned levels, enum tt_level wanted)
{
    int level = (int)wanted;
    while (level >= 0 && (levels & TT_LEVEL_BIT(level)) == 0) level--;
    if (level < 0)
        for (level = 0; (levels & TT_LEVEL_BIT(level)) == 0;) level++;
    return (enum tt_level)level;
}

enum tt_level tt_block_level(const struct tt_block *block, enum tt_level wanted)
{
    return tt_level_among(tt_block_levels(block), wanted);
}
