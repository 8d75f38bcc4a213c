/* A feed of images, which threads load ahead. */
#ifndef TT_ENGINE_FEED_IMAGES_H
#define TT_ENGINE_FEED_IMAGES_H

#include "detect/loader.h"
#include "engine/feed.h"

/* `config->rank` and `workers` are those of the rank; no thread starts before the first micro batch. */
TT_MUST_USE tt_status tt_feed_of_images(const struct tt_detect_loader_config *config, struct tt_feed *feed);

#endif
