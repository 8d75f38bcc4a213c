import glob, json
from PIL import Image
fs=sorted(glob.glob('/tmp/det/shapes/images/train/*'))[:12]
W=Image.new('RGB',(160*4,160*3))
for i,f in enumerate(fs): W.paste(Image.open(f).convert('RGB'),((i%4)*160,(i//4)*160))
W.save('/tmp/det/sheet.png')
